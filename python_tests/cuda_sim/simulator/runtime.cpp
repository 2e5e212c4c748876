#include "simulator/runtime.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "simulator/block.h"
#include "simulator/fiber.h"
#include "simulator/traffic.h"

// Compiled without sanitizer instrumentation, like block.cpp and fiber.cpp.

namespace cuda_sim {
namespace {

Order chosen_order = Order::kAscending;
std::uint32_t chosen_seed = 0;
std::uint64_t sampling = 1;
int last_error = 0;
constexpr int kInvalidConfiguration = 9;  // cudaErrorInvalidConfiguration
dim3 running_grid;

// Exactly `bytes` from the allocator, so that the address sanitizer guards both ends.
struct SharedMemory {
    explicit SharedMemory(std::size_t bytes)
        : size(bytes), data(static_cast<unsigned char*>(::operator new(bytes, kAlignment))) {}
    ~SharedMemory() { ::operator delete(data, kAlignment); }
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    // All bits set: NaN as half, bfloat16, float or double.
    void poison() { std::memset(data, 0xff, size); }

    static constexpr std::align_val_t kAlignment{16};
    std::size_t size;
    unsigned char* data;
};

bool valid(dim3 grid, dim3 block, std::size_t shared_bytes) {
    constexpr std::uint64_t kMaxGridX = (1ull << 31) - 1;
    constexpr std::uint64_t kMaxGridYZ = 65535;
    const auto within = [](std::uint64_t n, std::uint64_t limit) { return n >= 1 && n <= limit; };
    const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
    return within(grid.x, kMaxGridX) && within(grid.y, kMaxGridYZ) && within(grid.z, kMaxGridYZ) &&
           within(threads, kMaxThreads) && block.z <= 64 && shared_bytes <= kMaxSharedBytes;
}

class Sequence {
  public:
    Sequence() : random_(chosen_seed) {}
    template <typename T>
    void arrange(std::vector<T>& items) {
        std::iota(items.begin(), items.end(), T{0});
        if (chosen_order == Order::kDescending) std::reverse(items.begin(), items.end());
        if (chosen_order == Order::kRandom) std::shuffle(items.begin(), items.end(), random_);
    }

  private:
    std::mt19937 random_;
};

}  // namespace

void set_order(Order order, std::uint32_t seed) {
    chosen_order = order;
    chosen_seed = seed;
}

void set_sampling(std::uint64_t n) { sampling = n; }

int take_last_error() { return std::exchange(last_error, 0); }

void launch(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& kernel) {
    static std::mutex one_launch_at_a_time;
    static std::vector<std::unique_ptr<Fiber>> fibers;
    if (!valid(grid, block, shared_bytes)) {
        last_error = kInvalidConfiguration;
        return;
    }
    const std::scoped_lock lock(one_launch_at_a_time);
    register_scheduler();
    running_grid = grid;
    Sequence sequence;
    const auto order = [&sequence](std::vector<unsigned>& turns) { sequence.arrange(turns); };
    const std::uint64_t n_blocks = std::uint64_t{grid.x} * grid.y * grid.z;
    std::vector<std::uint64_t> blocks((n_blocks + sampling - 1) / sampling);
    sequence.arrange(blocks);
    const double represented = static_cast<double>(n_blocks) / static_cast<double>(blocks.size());

    // Blocks share no memory: under the thread sanitizer, which would take reuse of an address
    // for a race between blocks, each has its own.
#if defined(CUDA_SIM_TSAN)
    const std::size_t n_shared = blocks.size();
#else
    const std::size_t n_shared = 1;
#endif
    std::vector<std::unique_ptr<SharedMemory>> shared;
    for (std::size_t i = 0; i < n_shared; ++i) {
        shared.push_back(std::make_unique<SharedMemory>(shared_bytes));
    }
    Block runner(block, kernel, fibers);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        SharedMemory& memory = *shared[i % n_shared];
        memory.poison();
        const std::uint64_t b = blocks[i] * sampling;
        const uint3 index = {static_cast<unsigned>(b % grid.x),
                             static_cast<unsigned>(b / grid.x % grid.y),
                             static_cast<unsigned>(b / grid.x / grid.y)};
        runner.run(index, memory.data, order);
        traffic::finish_block(represented);
    }
}

const uint3& thread_index() { return running_block()->current().index; }
const uint3& block_index() { return running_block()->index(); }
const dim3& block_size() { return running_block()->size(); }
const dim3& grid_size() { return running_grid; }
unsigned linear_thread() { return running_block()->current().linear; }
unsigned barriers_passed() { return running_block()->current().barriers; }
unsigned char* dynamic_shared() { return running_block()->shared(); }

unsigned block_barrier(bool predicate, const char* name, const std::source_location& where) {
    return running_block()->barrier(predicate, name, where);
}

WarpValue warp_collective(Collective kind, std::uint32_t mask, WarpValue value, int source_lane,
                          const std::source_location& where) {
    return running_block()->collective(kind, mask, value, source_lane, where);
}

}  // namespace cuda_sim
