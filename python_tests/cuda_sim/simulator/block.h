// The blocks of one launch in execution, one at a time: threads, barriers, warp collectives.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "simulator/fiber.h"
#include "simulator/runtime.h"

namespace cuda_sim {

enum class State { kReady, kAtBarrier, kInCollective, kReturned };

struct Thread {
    uint3 index{};
    unsigned linear = 0;
    State state = State::kReady;
    unsigned barriers = 0;  // passed in this block
    unsigned warp_syncs = 0;
    std::source_location where;  // of the barrier or collective it waits in
    const char* waiting_in = "";
    bool predicate = false;
    // Collective in progress: what this lane brought, and what it takes home.
    Collective kind = Collective::kSyncWarp;
    std::uint32_t mask = 0;
    int source_lane = 0;
    WarpValue brought{};
    WarpValue result{};
    Fiber* fiber = nullptr;
};

class Block {
  public:
    Block(dim3 size, const std::function<void()>& kernel,
          std::vector<std::unique_ptr<Fiber>>& fibers);
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    // Runs all threads to their end; `order` fills the sequence of turns for one round.
    void run(uint3 index, unsigned char* shared,
             const std::function<void(std::vector<unsigned>&)>& order);

    unsigned barrier(bool predicate, const char* name, const std::source_location& where);
    WarpValue collective(Collective kind, std::uint32_t mask, WarpValue value, int source_lane,
                         const std::source_location& where);

    const Thread& current() const { return *current_; }
    const uint3& index() const { return index_; }
    const dim3& size() const { return size_; }
    unsigned char* shared() const { return shared_; }

  private:
    static void enter(void* thread);
    void body();
    void wait(State state, const char* name, const std::source_location& where);
    void release_barrier();
    void finish_collective(unsigned warp, std::uint32_t mask);
    void check_mask(std::uint32_t mask, const std::source_location& where) const;
    std::string describe(const Thread& thread) const;

    dim3 size_;
    const std::function<void()>& kernel_;
    uint3 index_{};
    unsigned char* shared_ = nullptr;
    std::vector<Thread> threads_;
    Thread* current_ = nullptr;
    unsigned barrier_count_ = 0;  // result of the last released barrier
    std::exception_ptr failure_;
    // Sync objects for the thread sanitizer. All threads start after the launch and return before
    // it ends; blocks are not ordered among themselves. Barriers alternate between two: a thread
    // that runs ahead to the next barrier must not publish to one that sleepers will still observe.
    char launch_object_ = 0;
    char return_object_ = 0;
    char barrier_object_[2] = {};
    std::vector<char> warp_objects_;  // two per warp
};

Block* running_block();

}  // namespace cuda_sim
