// Adjoint of the residual: samples gather from the segments that contain them.
//
// Rows of a batch of segments (given residuals, or residuals computed just before) stand in shared
// memory in accumulation precision. A thread owns a few samples and adds to each the rows of its
// segments in their order, so no two threads write to one sample and the sum has one order.
// Neighbouring samples (vector path) share rows: a row is read once for all of them. On the scalar
// path the samples of a thread are a sweep of groups apart, which keeps stores contiguous.
#pragma once

#include "cuda/residual.cuh"

namespace wpnode::cuda {

// Rows of a batch in shared memory.
template <typename T, int V>
class ResidualTile {
  public:
    using Row = Pack<AccumulatorOf<T>, V>;

    __device__ ResidualTile(unsigned char* memory, const Tiling& tiling, const Seat& seat)
        : memory_(reinterpret_cast<Row*>(memory) + seat.lane), lanes_(tiling.lanes) {}

    __device__ __forceinline__ void store(int j, const Values<T, V>& values) {
        Row row;
#pragma unroll
        for (int c = 0; c < V; ++c) row.v[c] = values.v[c];
        store_shared(memory_ + j * lanes_, row);
    }
    __device__ __forceinline__ Values<T, V> load(int j) const {
        const Row row = load_shared(memory_ + j * lanes_);
        Values<T, V> values;
#pragma unroll
        for (int c = 0; c < V; ++c) values.v[c] = row.v[c];
        return values;
    }

  private:
    Row* memory_;
    int lanes_;
};

template <Purpose kPurpose, typename T, int V>
inline constexpr int kRowsPerThread =
    rows_per_thread(kPurpose, V* static_cast<int>(sizeof(AccumulatorOf<T>)));

// The samples of a thread, relative to the tile's first: first + m * step for m < count.
template <int V>
struct SampleRows {
    int first;
    int step;
    int count;

    __device__ SampleRows(const Tiling& tiling, const Seat& seat)
        : first(V > 1 ? seat.group * tiling.rows_per_group : seat.group),
          step(V > 1 ? 1 : tiling.groups),
          count(tiling.rows_per_group) {}
};

// Starts of the batch relative to sample `origin`; listed in shared memory unless uniform. A
// barrier must follow.
__device__ inline LocalStarts local_starts(const Shape& shape, const Tiling& tiling, int k,
                                           int count, int origin, unsigned char* memory) {
    if (!shape.starts) return {shape, nullptr, k * shape.q - origin, count};
    auto* listed = reinterpret_cast<int*>(memory + tiling.starts_at);
    for (int j = static_cast<int>(threadIdx.x); j < count; j += static_cast<int>(blockDim.x)) {
        store_shared(listed + j, shape.start(k + j) - origin);
    }
    return {shape, listed, 0, count};
}

// Adds the batch's rows to the thread's samples.
template <typename T, int V, typename Weights, int kRows>
__device__ void gather(const ResidualTile<T, V>& rows, const Weights& weights,
                       const LocalStarts& starts, const SampleRows<V>& samples, int ell,
                       Values<T, V> (&sums)[kRows]) {
    if constexpr (V > 1) {
        const int last = samples.first + kRows - 1;
        const int stop = starts.first_from(last + 1);
#pragma unroll 1
        for (int j = starts.first_from(samples.first - ell); j < stop; ++j) {
            const Values<T, V> row = rows.load(j);
            const auto w = weights.row(j);
            const int node = samples.first - starts.at(j);  // of the first sample
            if (node >= 0 && node + kRows - 1 <= ell) {
#pragma unroll
                for (int m = 0; m < kRows; ++m) sums[m].add_product(w(node + m), row);
            } else {
#pragma unroll
                for (int m = 0; m < kRows; ++m) {
                    if (node + m >= 0 && node + m <= ell) sums[m].add_product(w(node + m), row);
                }
            }
        }
    } else {
#pragma unroll
        for (int m = 0; m < kRows; ++m) {
            if (m >= samples.count) break;
            const int sample = samples.first + m * samples.step;
            const int stop = starts.first_from(sample + 1);
#pragma unroll 2
            for (int j = starts.first_from(sample - ell); j < stop; ++j) {
                const int node = sample - starts.at(j);
                // Always, if the starts are in order.
                if (node >= 0 && node <= ell) {
                    sums[m].add_product(weights.row(j)(node), rows.load(j));
                }
            }
        }
    }
}

}  // namespace wpnode::cuda
