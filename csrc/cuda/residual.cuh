// Residuals of a batch of segments, two per thread.
//
// On the vector path a thread takes two neighbouring segments: a row both contain is read once. On
// the scalar path groups are single rows of a small state, and segments a full sweep of groups
// apart keep the access to global memory contiguous. Every sum is formed in the order of its nodes.
#pragma once

#include "cuda/ring.cuh"

namespace wpnode::cuda {

// Segments of the batch a group works on.
template <int V>
struct SegmentPair {
    int first;
    int second;

    __device__ SegmentPair(const Tiling& tiling, const Seat& seat)
        : first(V > 1 ? 2 * seat.group : seat.group),
          second(V > 1 ? 2 * seat.group + 1 : seat.group + tiling.groups) {}
};

// Puts the rows and weights of the batch into shared memory, between two barriers.
template <typename T, int V, WeightMode kMode>
__device__ void stage(const Shape& shape, const Tiling& tiling,
                      const WeightSource<AccumulatorOf<T>>& source, const HalfRule& rule,
                      const Batch& batch, Ring<T, V, kMode>& ring, unsigned char* memory) {
    __syncthreads();  // readers of the previous batch
    ring.load(shape, tiling, batch);
    StagedTimes times{nullptr, 0, 0};
    if (kMode == WeightMode::kGenerated && batch.dense) {
        auto* staged = reinterpret_cast<double*>(memory + tiling.times_at);
        for (int n = static_cast<int>(threadIdx.x); n < batch.end - batch.begin;
             n += static_cast<int>(blockDim.x)) {
            store_shared(staged + n, load_global(source.times + batch.begin + n));
        }
        times = {staged, batch.begin, batch.end};
        __syncthreads();
    }
    fill_rows<kMode>(source, rule, shape, tiling, batch.k, batch.count, times, memory);
    __syncthreads();
}

// sum_i w(i) x_i of two segments with rows of their own.
template <typename T, int V, typename Rows, typename Weight>
__device__ __forceinline__ void accumulate_two(Rows rows_first, Rows rows_second,
                                               const Weight& w_first, const Weight& w_second,
                                               int ell, Values<T, V>& first, Values<T, V>& second) {
#pragma unroll(V > 1 ? 1 : 4)
    for (int i = 0; i <= ell; ++i) {
        first.add_product(w_first(i), rows_first.next());
        second.add_product(w_second(i), rows_second.next());
    }
}

// The same if the second segment starts `distance` rows after the first, 0 <= distance <= ell.
template <typename T, int V, typename Rows, typename Weight>
__device__ __forceinline__ void accumulate_shared(Rows rows, const Weight& w_first,
                                                  const Weight& w_second, int distance, int ell,
                                                  Values<T, V>& first, Values<T, V>& second) {
    int i = 0;
#pragma unroll 1
    for (; i < distance; ++i) first.add_product(w_first(i), rows.next());
#pragma unroll 1
    for (; i <= ell; ++i) {
        const Pack<T, V> row = rows.next();
        first.add_product(w_first(i), row);
        second.add_product(w_second(i - distance), row);
    }
#pragma unroll 1
    for (; i <= ell + distance; ++i) second.add_product(w_second(i - distance), rows.next());
}

// Residuals of the pair; NaN for a segment the batch cannot serve. If the pair has no second
// segment, `second` is meaningless.
template <typename T, int V, WeightMode kMode>
__device__ void pair_of_residuals(const Shape& shape, const Tiling& tiling,
                                  const Ring<T, V, kMode>& ring,
                                  const BatchWeights<AccumulatorOf<T>, kMode>& weights,
                                  const Batch& batch, const SegmentPair<V>& pair,
                                  Values<T, V>& first, Values<T, V>& second) {
    // If one segment of the pair cannot be served, the other one is computed in its place.
    int j = pair.first;
    int other = pair.second < batch.count ? pair.second : pair.first;
    int start = shape.start(batch.k + j);
    int next = shape.start(batch.k + other);
    const bool served = batch.serves(shape, start);
    const bool other_served = batch.serves(shape, next);
    if (!served) j = other, start = next;
    if (!other_served) other = j, next = start;
    if (served || other_served) {
        const auto rows = ring.rows(shape, tiling, batch, j, start);
        if (V > 1 && batch.dense && next >= start && next - start <= shape.ell) {
            accumulate_shared(rows, weights.row(j), weights.row(other), next - start, shape.ell,
                              first, second);
        } else {
            accumulate_two(rows, ring.rows(shape, tiling, batch, other, next), weights.row(j),
                           weights.row(other), shape.ell, first, second);
        }
    }
    if (!served) first.fill(kNan<AccumulatorOf<T>>);
    if (!other_served) second.fill(kNan<AccumulatorOf<T>>);
}

}  // namespace wpnode::cuda
