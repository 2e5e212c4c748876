// The row kernels of microkernels.h; see microkernels_impl.h for how they are compiled.
//
// A block is kRows consecutive rows by kVectors vectors, all in registers. An input row is loaded
// once for the kRows outputs it enters, so that loads leave both FMA units busy, and the
// kRows * kVectors independent sums hide their latency. Bands of rows are finished over their whole
// width before the next one, which keeps the window of n_taps rows in the first-level cache and
// visits memory in order. Each block asks for the few rows that a block of the rows after it is the
// first to need: a whole band at once would fill the queue of outstanding misses.
#pragma once

#include <cstdint>

#include "microkernels.h"
#include "vector.h"

namespace wpnode::cpu {
namespace {

constexpr bool kManyRegisters = WPNODE_VECTOR_BYTES == 64;  // 32, otherwise 16

constexpr int kMostVectors = 5;
constexpr std::int64_t kBand = kManyRegisters ? 12 : 6;  // a multiple of every kRowsFor
constexpr std::int64_t kAhead = 6;                       // rows asked for in advance

// With the weights and one input they fill, but do not exceed, the registers.
template <int kVectors>
constexpr int kRowsFor = kManyRegisters ? (kVectors == 5   ? 4
                                           : kVectors >= 2 ? 6
                                                           : 12)
                                        : (kVectors == 5   ? 2
                                           : kVectors >= 3 ? 3
                                                           : 6);

template <typename T, int kRows, int kVectors>
struct RowBlock {
    using V = Vector<T>;
    std::int64_t last;  // column of the last vector, which may overlap the one before it
    typename V::Aligned sum[kRows][kVectors] = {};

    std::int64_t column(int v) const { return v + 1 < kVectors ? v * V::kLanes : last; }

    // Calls body(r, v, offset of that vector) for every vector of rows `stride` apart.
    template <typename Body>
    void each(std::int64_t stride, const Body& body) const {
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
            for (int v = 0; v < kVectors; ++v) body(r, v, r * stride + column(v));
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

    // Asks for rows of this block's shape; addresses past the array are allowed.
    template <int kForWriting>
    void prefetch(const T* p, std::int64_t stride) const {
        each(stride,
             [&](int, int, std::int64_t at) { __builtin_prefetch(p + at, kForWriting, 3); });
    }

    // sum[r] += sum_t w[t] * x[r + t], each output in the order of t.
    void add(const T* w, std::int64_t n_taps, const T* x, std::int64_t stride) {
        if (n_taps < kRows) {
            for (std::int64_t t = 0; t < n_taps; ++t, x += stride) {
                const auto weight = V::broadcast(w[t]);
                each(stride,
                     [&](int r, int v, std::int64_t at) { sum[r][v] += weight * V::load(x + at); });
            }
            return;
        }
        // Input row i enters the outputs r with 0 <= i - r < n_taps only.
#pragma GCC unroll 16
        for (int i = 0; i + 1 < kRows; ++i, x += stride) add_row(w + i, x, 0, i + 1);
        for (std::int64_t i = kRows - 1; i < n_taps; ++i, x += stride) add_row(w + i, x, 0, kRows);
#pragma GCC unroll 16
        for (int r = 1; r < kRows; ++r, x += stride) add_row(w + n_taps - 1 + r, x, r, kRows);
    }

  private:
    // sum[r] += w[-r] * x, begin <= r < end; bounds are constants once inlined.
    [[gnu::always_inline]] void add_row(const T* w, const T* x, int begin, int end) {
        // Compilers that see the same weights in the next row carry them over as scalars and
        // spread them by a shuffle, which takes an FMA unit; a load that broadcasts takes none.
        asm("" : "+r"(w));
        typename V::Aligned weight[kRows];
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r)
            if (begin <= r && r < end) weight[r] = V::broadcast(w[-r]);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
            const auto value = V::load(x + column(v));
#pragma GCC unroll 16
            for (int r = 0; r < kRows; ++r)
                if (begin <= r && r < end) sum[r][v] += weight[r] * value;
        }
    }
};

// Calls body.operator()<kRows, kVectors>(row, column, last) for blocks that cover the rows from
// `begin` to `end` and `width` >= one vector; the last vector of a block is `last` columns to the
// right of its first and overlaps the one before it where rows are not whole vectors.
template <typename T, typename Body>
inline void for_blocks(std::int64_t begin, std::int64_t end, std::int64_t width, const Body& body) {
    constexpr std::int64_t kLanes = Vector<T>::kLanes;
    const auto rows = [&]<int kVectors>(std::int64_t column) {
        const std::int64_t whole = (kVectors - 1) * kLanes;
        const std::int64_t rest = width - kLanes - column;
        const std::int64_t last = whole < rest ? whole : rest;
        std::int64_t row = begin;
        for (; row + kRowsFor<kVectors> <= end; row += kRowsFor<kVectors>)
            body.template operator()<kRowsFor<kVectors>, kVectors>(row, column, last);
        for (; row < end; ++row) body.template operator()<1, kVectors>(row, column, last);
    };
    const std::int64_t n_vectors = (width + kLanes - 1) / kLanes;
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
}

template <typename T>
void gather(const GatherRows<T>& g) {
    for (std::int64_t begin = 0; begin < g.n_rows; begin += kBand) {
        const std::int64_t end = begin + kBand < g.n_rows ? begin + kBand : g.n_rows;
        const auto block = [&]<int kRows, int kVectors>(std::int64_t row, std::int64_t column,
                                                        std::int64_t last) {
            RowBlock<T, kRows, kVectors> sums{last};
            if (g.initial) {
                const T* initial = g.initial + row * g.initial_stride + column;
                sums.load(initial, g.initial_stride);
                if (g.prefetch)
                    sums.template prefetch<0>(initial + kAhead * g.initial_stride,
                                              g.initial_stride);
            }
            for (std::int64_t f = 0; f < g.n_phases; ++f) {
                const auto [w, n_taps, rows] = g.phases[f];
                const T* in = rows + row * g.in_stride + column;
                if (g.prefetch)
                    sums.template prefetch<0>(in + (n_taps - 1 + kAhead) * g.in_stride,
                                              g.in_stride);
                sums.add(w, n_taps, in, g.in_stride);
            }
            sums.store(g.out + row * g.out_stride + column, g.out_stride);
        };
        for_blocks<T>(begin, end, g.width, block);
    }
}

template <typename T, bool kStream>
void spread_as(const SpreadRows<T>& s) {
    for (std::int64_t begin = 0; begin < s.n_rows; begin += kBand) {
        const std::int64_t end = begin + kBand < s.n_rows ? begin + kBand : s.n_rows;
        const auto block = [&]<int kRows, int kVectors>(std::int64_t row, std::int64_t column,
                                                        std::int64_t last) {
            for (std::int64_t f = 0; f < s.n_phases; ++f) {
                T* out = s.out + row * s.row_stride + f * s.phase_stride + column;
                RowBlock<T, kRows, kVectors> sums{last};
                // Lines are read before they are written to; asked for here, they come during the
                // sums.
                if constexpr (!kStream)
                    sums.template prefetch<1>(out + (s.prefetch ? kAhead : 0) * s.row_stride,
                                              s.row_stride);
                sums.add(s.phases[f].weights, s.phases[f].n_taps,
                         s.phases[f].in + row * s.in_stride + column, s.in_stride);
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
    if constexpr (Vector<T>::kStreams) {
        if (s.stream && offsets % Vector<T>::kBytes == 0) return spread_as<T, true>(s);
    }
    spread_as<T, false>(s);
}

}  // namespace
}  // namespace wpnode::cpu
