// Execution of a kernel by g++: one fiber per CUDA thread, blocks one after the other.
//
// What it finds, and reports as cuda_sim::Error out of `launch`:
//   * a barrier that not all threads of the block reach, or reach at different places; a thread
//     that has returned never reaches one (stricter than the hardware, which forgives it);
//   * a warp collective whose mask names a lane that returned, does not exist, or calls another
//     collective, and a caller that its own mask leaves out; a shuffle from a lane not in the mask;
//   * a deadlock of any other kind;
//   * vector access to an address that is not a multiple of the vector's size (see memory.h).
// Wrong results that depend on the order of threads or blocks show up by comparing the orders;
// shared memory starts as NaN; out-of-bounds access and data races are the sanitizers' part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <stdexcept>

#include "simulator/vector_types.h"

namespace cuda_sim {

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Order in which threads of a block, and blocks of a grid, take their turns. Random orders are
// drawn anew at every turn.
enum class Order { kAscending, kDescending, kRandom };
void set_order(Order order, std::uint32_t seed = 0);

// Runs only every n-th block of a grid, to count traffic of large launches; counts are scaled up.
void set_sampling(std::uint64_t n);

// Limits every supported device has; a launch beyond them only sets the last error.
inline constexpr unsigned kMaxThreads = 1024;
inline constexpr std::size_t kMaxSharedBytes = 48 * 1024;
inline constexpr unsigned kWarpSize = 32;

void launch(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& kernel);

// Error of the launches since the last call: 0, or 9 (invalid configuration), as the runtime does.
int take_last_error();

// ---- for the running thread ----
const uint3& thread_index();
const uint3& block_index();
const dim3& block_size();
const dim3& grid_size();
unsigned linear_thread();    // position in the block, x fastest
unsigned barriers_passed();  // by this thread in this block
unsigned char* dynamic_shared();

// Waits for every thread of the block; returns how many passed a non-zero predicate.
unsigned block_barrier(bool predicate, const char* name, const std::source_location& where);

enum class Collective { kShuffle, kBallot, kSyncWarp };

struct WarpValue {
    std::uint64_t words[2];
};

// Waits for the lanes of `mask`. kShuffle returns the value `source_lane` passed; kBallot returns
// in words[0] the lanes whose words[0] was not zero.
WarpValue warp_collective(Collective kind, std::uint32_t mask, WarpValue value, int source_lane,
                          const std::source_location& where);

[[noreturn]] void fail(const char* what, const std::source_location& where);

}  // namespace cuda_sim
