// Counts what a kernel moves: 32-byte sectors of global memory and shared-memory conflicts.
//
// A request is what one warp instruction asks for: the n-th time since the last barrier that the
// lanes of a warp execute the access at one place of the source. A global request costs the
// distinct 32-byte sectors it touches. A shared request is served in phases of 128 bytes
// (32 lanes of 4 bytes, 16 of 8, 8 of 16); a phase that asks for d different words of one bank
// takes d passes, d - 1 of them conflicts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>

namespace cuda_sim::traffic {

enum class Space { kGlobalLoad, kGlobalStore, kSharedLoad, kSharedStore };
inline constexpr int kSpaces = 4;

struct Count {
    double requests = 0;
    double bytes = 0;      // asked for by the lanes
    double sectors = 0;    // global
    double passes = 0;     // shared
    double conflicts = 0;  // shared: passes beyond one per phase
};

void enable(bool on);  // also resets
Count total(Space space);

// An access of the running thread; a null address is a lane switched off by a predicate.
void record(Space space, const void* address, std::size_t bytes, const std::source_location& where);
bool enabled();

// The counts of the block stand for `represented` blocks.
void finish_block(double represented);

}  // namespace cuda_sim::traffic
