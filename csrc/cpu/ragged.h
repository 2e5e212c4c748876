// The operators of uniform.h for segments at arbitrary, non-decreasing starts, with one weight
// vector for all segments (weight_stride = 0) or one each (weight_stride = ell + 1).
//
// Starts must satisfy 0 <= starts[k] <= n_samples - 1 - ell.
#pragma once

#include "../core/segments.h"
#include "half.h"
#include "parallel.h"

namespace wpnode::cpu {

template <typename T>
struct RaggedWeights {
    const std::int64_t* starts;  // [n_segments]
    const T* w;                  // [ell + 1] or [n_segments, ell + 1]
    std::int64_t stride;

    const T* row(std::int64_t k) const { return w + k * stride; }
};

template <typename S>
void corr_ragged(const core::Geometry& g, const S* samples,
                 const RaggedWeights<AccumulatorOf<S>>& w, S* segments,
                 const ParallelFor& parallel_for);

template <typename S>
void corr_t_ragged(const core::Geometry& g, const S* segments,
                   const RaggedWeights<AccumulatorOf<S>>& w, S* samples,
                   const ParallelFor& parallel_for);

template <typename S>
double weak_loss_ragged(const core::Geometry& g, const S* f, const AccumulatorOf<S>* lhs,
                        const RaggedWeights<AccumulatorOf<S>>& w, double scale, S* gradient,
                        const ParallelFor& parallel_for);

}  // namespace wpnode::cpu
