// Index arithmetic of segments, shared by the CPU and CUDA operators.
//
// A series has n_samples samples of `state` values. Segment k covers the ell + 1 samples that begin
// at k * q (uniform) or at starts[k] (ragged; non-decreasing, shared by the batch).
#pragma once

#include <cstdint>

#include "sizes.h"

namespace wpnode::core {

struct Geometry {
    std::int64_t batch;
    std::int64_t n_samples;
    std::int64_t state;
    std::int64_t n_segments;
    std::int64_t ell;
    std::int64_t q;
};

constexpr std::int64_t count_segments(std::int64_t n_samples, std::int64_t ell, std::int64_t q) {
    return n_samples > ell ? (n_samples - 1 - ell) / q + 1 : 0;
}

}  // namespace wpnode::core
