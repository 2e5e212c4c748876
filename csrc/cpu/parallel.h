// How kernels ask for threads. The caller supplies the loop (torch's thread pool in the extension,
// a plain loop or std::thread in the tests); kernels split work by shape alone and give every tile
// its own output, so results do not depend on the loop.
#pragma once

#include <cstdint>
#include <functional>

namespace wpnode::cpu {

using RangeBody = std::function<void(std::int64_t begin, std::int64_t end)>;
using ParallelFor = std::function<void(std::int64_t n, std::int64_t grain, const RangeBody& body)>;

// Tiles to hand out at once so that a hand-out is worth the cost of waking a thread.
inline std::int64_t grain_for(double multiply_adds_per_tile) {
    constexpr double kWorthAThread = 1e5;
    if (multiply_adds_per_tile >= kWorthAThread) return 1;
    return static_cast<std::int64_t>(kWorthAThread / (multiply_adds_per_tile + 1.0)) + 1;
}

}  // namespace wpnode::cpu
