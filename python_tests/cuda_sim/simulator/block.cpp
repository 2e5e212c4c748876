#include "simulator/block.h"

#include <algorithm>
#include <bit>
#include <utility>

// The scheduler gives every ready thread a turn; a turn lasts until the thread waits or returns.
// Barriers are released by the scheduler, collectives by the last lane that arrives.
// This file is compiled without sanitizer instrumentation: the threads' states are the
// simulator's, not the program's.

namespace cuda_sim {
namespace {

Block* running = nullptr;

std::string place(const std::source_location& where) {
    const std::string file = where.file_name();
    return file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line());
}

}  // namespace

Block* running_block() { return running; }

Block::Block(dim3 size, const std::function<void()>& kernel,
             std::vector<std::unique_ptr<Fiber>>& fibers)
    : size_(size), kernel_(kernel), threads_(size.x * size.y * size.z) {
    while (fibers.size() < threads_.size()) fibers.push_back(std::make_unique<Fiber>());
    for (unsigned i = 0; i < threads_.size(); ++i) {
        Thread& thread = threads_[i];
        thread.linear = i;
        thread.index = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
        thread.fiber = fibers[i].get();
    }
    warp_objects_.resize(2 * (threads_.size() / kWarpSize + 1));
    publish(&launch_object_);
}

Block::~Block() { observe(&return_object_); }

std::string Block::describe(const Thread& thread) const {
    return "block (" + std::to_string(index_.x) + ", " + std::to_string(index_.y) + ", " +
           std::to_string(index_.z) + ") thread (" + std::to_string(thread.index.x) + ", " +
           std::to_string(thread.index.y) + ", " + std::to_string(thread.index.z) + ")";
}

void Block::enter(void* thread) {
    auto* self = static_cast<Thread*>(thread);
    observe(&running->launch_object_);
    running->body();
    publish(&running->return_object_);
    self->state = State::kReturned;
    self->fiber->finish();
}

void Block::body() {
    try {
        kernel_();
        const std::uint32_t bit = 1u << (current_->linear % kWarpSize);
        const unsigned first = current_->linear / kWarpSize * kWarpSize;
        for (unsigned i = first; i < std::min<std::size_t>(first + kWarpSize, threads_.size());
             ++i) {
            const Thread& lane = threads_[i];
            if (lane.state == State::kInCollective && (lane.mask & bit)) {
                fail("a lane named in the mask of a warp collective has returned", lane.where);
            }
        }
    } catch (...) {
        failure_ = std::current_exception();
    }
}

void Block::run(uint3 index, unsigned char* shared,
                const std::function<void(std::vector<unsigned>&)>& order) {
    index_ = index;
    shared_ = shared;
    running = this;
    for (Thread& thread : threads_) {
        thread.state = State::kReady;
        thread.barriers = 0;
        thread.warp_syncs = 0;
        thread.fiber->prepare(&Block::enter, &thread);
    }
    std::vector<unsigned> turns(threads_.size());
    for (;;) {
        order(turns);
        bool progress = false;
        for (const unsigned i : turns) {
            if (threads_[i].state != State::kReady) continue;
            progress = true;
            current_ = &threads_[i];
            current_->fiber->resume();
            if (failure_) {
                running = nullptr;
                std::rethrow_exception(std::exchange(failure_, nullptr));
            }
        }
        if (progress) continue;
        const auto returned = [](const Thread& t) { return t.state == State::kReturned; };
        if (std::all_of(threads_.begin(), threads_.end(), returned)) break;
        try {
            release_barrier();
        } catch (...) {
            running = nullptr;
            throw;
        }
    }
    running = nullptr;
}

// No thread can move: either all wait at one barrier, or the kernel is wrong.
void Block::release_barrier() {
    const auto waiting = std::find_if(threads_.begin(), threads_.end(),
                                      [](const Thread& t) { return t.state != State::kReturned; });
    unsigned count = 0;
    for (const Thread& thread : threads_) {
        if (thread.state == State::kReturned) {
            throw Error("divergent barrier: " + describe(thread) + " has returned, " +
                        describe(*waiting) + " waits in " + waiting->waiting_in + " at " +
                        place(waiting->where));
        }
        if (thread.state != State::kAtBarrier || thread.where.line() != waiting->where.line() ||
            thread.where.column() != waiting->where.column()) {
            throw Error("divergent barrier: " + describe(thread) + " waits in " +
                        thread.waiting_in + " at " + place(thread.where) + ", " +
                        describe(*waiting) + " in " + waiting->waiting_in + " at " +
                        place(waiting->where));
        }
        count += thread.predicate;
    }
    barrier_count_ = count;
    for (Thread& thread : threads_) thread.state = State::kReady;
}

void Block::wait(State state, const char* name, const std::source_location& where) {
    Thread* self = current_;
    self->state = state;
    self->waiting_in = name;
    self->where = where;
    self->fiber->yield_to_scheduler();
}

unsigned Block::barrier(bool predicate, const char* name, const std::source_location& where) {
    Thread* self = current_;
    self->predicate = predicate;
    char* object = &barrier_object_[self->barriers++ % 2];
    publish(object);
    wait(State::kAtBarrier, name, where);
    observe(object);
    return barrier_count_;
}

void Block::check_mask(std::uint32_t mask, const std::source_location& where) const {
    const unsigned first = current_->linear / kWarpSize * kWarpSize;
    if (!(mask & (1u << (current_->linear - first)))) {
        fail("a warp collective is called by a lane its mask leaves out", where);
    }
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
        if (!(mask & (1u << lane))) continue;
        if (first + lane >= threads_.size()) {
            fail("the mask of a warp collective names a lane that does not exist", where);
        }
        const Thread& other = threads_[first + lane];
        if (other.state == State::kReturned) {
            fail("a lane named in the mask of a warp collective has returned", where);
        }
        if (other.state == State::kInCollective && &other != current_ &&
            (other.mask != mask || other.kind != current_->kind)) {
            fail("lanes of one mask call different warp collectives or pass different masks",
                 where);
        }
    }
}

WarpValue Block::collective(Collective kind, std::uint32_t mask, WarpValue value, int source_lane,
                            const std::source_location& where) {
    static constexpr const char* kNames[] = {"__shfl_sync", "__ballot_sync", "__syncwarp"};
    Thread* self = current_;
    self->kind = kind;
    self->mask = mask;
    self->brought = value;
    self->source_lane = source_lane;
    self->where = where;
    check_mask(mask, where);

    const unsigned warp = self->linear / kWarpSize;
    const unsigned first = warp * kWarpSize;
    unsigned arrived = 1;
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
        arrived += (mask >> lane & 1u) && &threads_[first + lane] != self &&
                   threads_[first + lane].state == State::kInCollective;
    }
    // Only __syncwarp orders memory between lanes.
    char* object = &warp_objects_[2 * warp + self->warp_syncs % 2];
    self->warp_syncs += kind == Collective::kSyncWarp;
    if (kind == Collective::kSyncWarp) publish(object);
    if (arrived == static_cast<unsigned>(std::popcount(mask))) {
        finish_collective(warp, mask);
    } else {
        wait(State::kInCollective, kNames[static_cast<int>(kind)], where);
    }
    if (kind == Collective::kSyncWarp) observe(object);
    return self->result;
}

void Block::finish_collective(unsigned warp, std::uint32_t mask) {
    Thread* lanes = &threads_[warp * kWarpSize];
    std::uint32_t ballot = 0;
    for (unsigned i = 0; i < kWarpSize; ++i) {
        if ((mask >> i & 1u) && lanes[i].brought.words[0]) ballot |= 1u << i;
    }
    for (unsigned i = 0; i < kWarpSize; ++i) {
        if (!(mask >> i & 1u)) continue;
        Thread& lane = lanes[i];
        if (lane.kind == Collective::kShuffle) {
            if (!(mask >> lane.source_lane & 1u)) {
                fail("a shuffle reads from a lane its mask leaves out", lane.where);
            }
            lane.result = lanes[lane.source_lane].brought;
        } else {
            lane.result = {{ballot, 0}};
        }
        lane.state = State::kReady;
    }
}

void fail(const char* what, const std::source_location& where) {
    std::string text = std::string(what) + " at " + place(where);
    if (running)
        text += " in block (" + std::to_string(running->index().x) + ") thread (" +
                std::to_string(running->current().linear) + ")";
    throw Error(text);
}

}  // namespace cuda_sim
