// The derivative of the correlation with respect to its weights,
//
//     gw[i]    = sum_{b, k, d} segments[b, k, d] * samples[b, s_k + i, d]     (shared weights)
//     gw[k, i] = sum_{b, d}    segments[b, k, d] * samples[b, s_k + i, d]     (one row a segment)
//
// T is float or double; sums are taken in float64 in a fixed order.
#pragma once

#include "../core/segments.h"
#include "parallel.h"

namespace wpnode::cpu {

// `starts` may be null: s_k = k q.
template <typename T>
void corr_w(const core::Geometry& g, const T* samples, const T* segments,
            const std::int64_t* starts, bool per_segment, T* gw, const ParallelFor& parallel_for);

}  // namespace wpnode::cpu
