// Operators on segments that start at every q-th sample, one weight vector for all of them.
//
// S is the storage type (float64, float32, BFloat16, Half), AccumulatorOf<S> the type of weights,
// of `lhs` and of all sums. Arrays are dense: samples [batch, n_samples, state], segments [batch,
// n_segments, state].
#pragma once

#include "../core/segments.h"
#include "half.h"
#include "parallel.h"

namespace wpnode::cpu {

// segments[k] = sum_i w[i] * samples[k q + i]
template <typename S>
void corr_uniform(const core::Geometry& g, const S* samples, const AccumulatorOf<S>* w, S* segments,
                  const ParallelFor& parallel_for);

// samples[n] = sum over the segments k that contain n of w[n - k q] * segments[k]
template <typename S>
void corr_t_uniform(const core::Geometry& g, const S* segments, const AccumulatorOf<S>* w,
                    S* samples, const ParallelFor& parallel_for);

// scale * sum (lhs + corr(f, w))^2; if `gradient` is not null also its derivative with respect to
// f, computed from residuals that live in scratch only.
template <typename S>
double weak_loss_uniform(const core::Geometry& g, const S* f, const AccumulatorOf<S>* lhs,
                         const AccumulatorOf<S>* w, double scale, S* gradient,
                         const ParallelFor& parallel_for);

}  // namespace wpnode::cpu
