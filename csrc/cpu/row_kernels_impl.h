// The row kernels of microkernels.h; see microkernels_impl.h for how they are compiled.
//
// A block is kRows consecutive rows by kVectors vectors, all in registers. An input row is loaded
// once for the kRows outputs it enters, so that loads leave both FMA units busy, and the
// kRows * kVectors independent sums hide their latency. Bands of rows are finished over their whole
// width before the next one, which keeps the window of n_taps rows in the first-level cache and
// visits memory in order; the rows of the band after next are asked for in advance.
#pragma once

#include <cstdint>

#include "microkernels.h"
#include "vector.h"

namespace wpnode::cpu {
namespace {

constexpr int kMostVectors = 5;
constexpr std::int64_t kBand = 6;  // a multiple of every kRowsFor

// With the weights and one input they fill, but do not exceed, sixteen registers.
template <int kVectors>
constexpr int kRowsFor = kVectors == 5   ? 2
                         : kVectors >= 3 ? 3
                                         : 6;

template <typename T, int kRows, int kVectors>
struct RowBlock {
    using V = Vector<T>;
    typename V::Aligned sum[kRows][kVectors] = {};

    // Calls body(r, v, offset of that vector) for every vector of rows `stride` apart.
    template <typename Body>
    static void each(std::int64_t stride, const Body& body) {
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) body(r, v, r * stride + v * V::kLanes);
    }

    void load(const T* p, std::int64_t stride) {
        each(stride, [&](int r, int v, std::int64_t at) { sum[r][v] = V::load(p + at); });
    }

    void store(T* p, std::int64_t stride) const {
        each(stride, [&](int r, int v, std::int64_t at) { V::store(p + at, sum[r][v]); });
    }

    void stream(T* p, std::int64_t stride) const {
        each(stride, [&](int r, int v, std::int64_t at) { V::stream(p + at, sum[r][v]); });
    }

    // sum[r] += sum_t w[t] * x[r + t], each output in the order of t.
    void add(const T* w, std::int64_t n_taps, const T* x, std::int64_t stride) {
        const std::int64_t n_inputs = n_taps + kRows - 1;
        const std::int64_t ramp = n_taps < kRows ? n_inputs : kRows - 1;
        std::int64_t i = 0;
        for (; i < ramp; ++i, x += stride) add_edge(w, n_taps, i, x);
        for (; i < n_taps; ++i, x += stride) {
            typename V::Aligned weight[kRows];
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) weight[r] = V::broadcast(w[i - r]);
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) {
                const auto value = V::load(x + v * V::kLanes);
#pragma GCC unroll 8
                for (int r = 0; r < kRows; ++r) sum[r][v] += weight[r] * value;
            }
        }
        for (; i < n_inputs; ++i, x += stride) add_edge(w, n_taps, i, x);
    }

  private:
    // Input row i enters the outputs r with 0 <= i - r < n_taps only.
    void add_edge(const T* w, std::int64_t n_taps, std::int64_t i, const T* x) {
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
            if (i < r || i - r >= n_taps) continue;
            const auto weight = V::broadcast(w[i - r]);
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) sum[r][v] += weight * V::load(x + v * V::kLanes);
        }
    }
};

// Calls body.operator()<kRows, kVectors>(row, column) for blocks that cover the rows from `begin`
// to `end` and `width` >= one vector; a last incomplete vector overlaps the one before it.
template <typename T, typename Body>
inline void for_blocks(std::int64_t begin, std::int64_t end, std::int64_t width, const Body& body) {
    const auto rows = [&]<int kVectors>(std::int64_t column) {
        std::int64_t row = begin;
        for (; row + kRowsFor<kVectors> <= end; row += kRowsFor<kVectors>)
            body.template operator()<kRowsFor<kVectors>, kVectors>(row, column);
        for (; row < end; ++row) body.template operator()<1, kVectors>(row, column);
    };
    constexpr std::int64_t kLanes = Vector<T>::kLanes;
    const std::int64_t n_vectors = width / kLanes;
    const std::int64_t n_blocks = (n_vectors + kMostVectors - 1) / kMostVectors;
    for (std::int64_t block = 0; block < n_blocks; ++block) {
        const std::int64_t first = n_vectors * block / n_blocks;
        const std::int64_t column = first * kLanes;
        switch (n_vectors * (block + 1) / n_blocks - first) {
            case 5:
                rows.template operator()<5>(column);
                break;
            case 4:
                rows.template operator()<4>(column);
                break;
            case 3:
                rows.template operator()<3>(column);
                break;
            case 2:
                rows.template operator()<2>(column);
                break;
            default:
                rows.template operator()<1>(column);
        }
    }
    if (width % kLanes) rows.template operator()<1>(width - kLanes);
}

// Asks for a band of rows; addresses past the array are allowed.
template <int kForWriting, typename T>
inline void prefetch_band(const T* p, std::int64_t stride, std::int64_t width) {
    constexpr std::int64_t kLine = 64 / sizeof(T);
    for (std::int64_t row = 0; row < kBand; ++row, p += stride)
        for (std::int64_t c = 0; c < width; c += kLine) __builtin_prefetch(p + c, kForWriting, 3);
}

template <typename T>
void gather(const GatherRows<T>& g) {
    for (std::int64_t begin = 0; begin < g.n_rows; begin += kBand) {
        if (g.prefetch) {
            for (std::int64_t f = 0; f < g.n_phases; ++f)
                prefetch_band<0>(
                    g.phases[f].in + (begin + kBand + g.phases[f].n_taps) * g.in_stride,
                    g.in_stride, g.width);
            if (g.initial)
                prefetch_band<0>(g.initial + (begin + kBand) * g.initial_stride, g.initial_stride,
                                 g.width);
        }
        const std::int64_t end = begin + kBand < g.n_rows ? begin + kBand : g.n_rows;
        const auto block = [&]<int kRows, int kVectors>(std::int64_t row, std::int64_t column) {
            RowBlock<T, kRows, kVectors> sums;
            if (g.initial) sums.load(g.initial + row * g.initial_stride + column, g.initial_stride);
            for (std::int64_t f = 0; f < g.n_phases; ++f)
                sums.add(g.phases[f].weights, g.phases[f].n_taps,
                         g.phases[f].in + row * g.in_stride + column, g.in_stride);
            sums.store(g.out + row * g.out_stride + column, g.out_stride);
        };
        for_blocks<T>(begin, end, g.width, block);
    }
}

template <typename T, bool kStream>
void spread_as(const SpreadRows<T>& s) {
    for (std::int64_t begin = 0; begin < s.n_rows; begin += kBand) {
        if (s.prefetch && !kStream)
            for (std::int64_t f = 0; f < s.n_phases; ++f)
                prefetch_band<1>(s.out + (begin + kBand) * s.row_stride + f * s.phase_stride,
                                 s.row_stride, s.width);
        const std::int64_t end = begin + kBand < s.n_rows ? begin + kBand : s.n_rows;
        const auto block = [&]<int kRows, int kVectors>(std::int64_t row, std::int64_t column) {
            for (std::int64_t f = 0; f < s.n_phases; ++f) {
                RowBlock<T, kRows, kVectors> sums;
                sums.add(s.phases[f].weights, s.phases[f].n_taps,
                         s.phases[f].in + row * s.in_stride + column, s.in_stride);
                T* out = s.out + row * s.row_stride + f * s.phase_stride + column;
                if constexpr (kStream) {
                    sums.stream(out, s.row_stride);
                } else {
                    sums.store(out, s.row_stride);
                }
            }
        };
        for_blocks<T>(begin, end, s.width, block);
    }
    if constexpr (kStream) stream_fence();
}

template <typename T>
void spread(const SpreadRows<T>& s) {
    const std::int64_t bytes = static_cast<std::int64_t>(sizeof(T));
    const std::int64_t offsets = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(s.out)) |
                                 s.row_stride * bytes | s.phase_stride * bytes | s.width * bytes;
    if (s.stream && offsets % Vector<T>::kBytes == 0) {
        spread_as<T, true>(s);
    } else {
        spread_as<T, false>(s);
    }
}

}  // namespace
}  // namespace wpnode::cpu
