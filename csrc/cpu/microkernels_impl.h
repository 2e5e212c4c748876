// Templates behind microkernels.h; included by one translation unit per instruction set, which
// defines WPNODE_VECTOR_BYTES. Everything sits in an anonymous namespace and nothing from the
// standard library is instantiated: a function compiled here for AVX-512 must never be the copy the
// linker keeps for the rest of the program.
#pragma once

#include <cstdint>

#include "microkernels.h"
#include "row_kernels_impl.h"
#include "vector.h"

namespace wpnode::cpu {
namespace {

// Rows are one flat array in which tap t is a shift by t * stride elements, so lanes are full for
// any row width. Eight accumulators hide the latency of two FMA units; each tap costs one broadcast
// and one load per accumulator, all within a window of n_taps rows that stays in the first-level
// cache.
template <typename T, int kVectors>
inline void fir_block(const Phase<T>* phases, std::int64_t n_phases, std::int64_t m,
                      std::int64_t stride, std::int64_t count, T* out, bool accumulate) {
    using V = Vector<T>;
    typename V::Aligned acc[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
        acc[v] = accumulate ? V::load(out + m + v * V::kLanes) : typename V::Aligned{};
    for (std::int64_t f = 0; f < n_phases; ++f) {
        const T* x = phases[f].in + m;
        for (std::int64_t t = 0; t < phases[f].n_taps; ++t, x += stride) {
            const auto weight = V::broadcast(phases[f].weights[t]);
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) acc[v] += weight * V::load(x + v * V::kLanes);
        }
    }
    if (m + kVectors * V::kLanes <= count) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) V::store(out + m + v * V::kLanes, acc[v]);
    } else {
        T tail[kVectors * V::kLanes];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) V::store(tail + v * V::kLanes, acc[v]);
        for (std::int64_t i = m; i < count; ++i) out[i] = tail[i - m];
    }
}

template <typename T>
void fir(const Phase<T>* phases, std::int64_t n_phases, std::int64_t n_rows, std::int64_t stride,
         T* out, bool accumulate) {
    constexpr std::int64_t kLanes = Vector<T>::kLanes;
    static_assert(4 * kLanes <= kOverrun);
    const std::int64_t count = n_rows * stride;
    std::int64_t m = 0;
    for (; m + 4 * kLanes < count; m += 8 * kLanes)
        fir_block<T, 8>(phases, n_phases, m, stride, count, out, accumulate);
    if (m + 2 * kLanes < count) {
        fir_block<T, 4>(phases, n_phases, m, stride, count, out, accumulate);
    } else if (m + kLanes < count) {
        fir_block<T, 2>(phases, n_phases, m, stride, count, out, accumulate);
    } else if (m < count) {
        fir_block<T, 1>(phases, n_phases, m, stride, count, out, accumulate);
    }
}

template <typename T, typename Term>
double fold(std::int64_t count, Term term) {
    constexpr int kSums = 8;  // the same for every instruction set
    double sums[kSums] = {};
    std::int64_t i = 0;
    for (; i + kSums <= count; i += kSums)
        for (int s = 0; s < kSums; ++s) sums[s] += term(i + s);
    for (int s = 0; i < count; ++i, ++s) sums[s] += term(i);
    return ((sums[0] + sums[4]) + (sums[1] + sums[5])) +
           ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

template <typename T>
double sum_squares(const T* values, std::int64_t count) {
    return fold<T>(count, [=](std::int64_t i) {
        const double x = values[i];
        return x * x;
    });
}

template <typename T>
double dot(const T* a, const T* b, std::int64_t count) {
    return fold<T>(count, [=](std::int64_t i) {
        return static_cast<double>(a[i]) * static_cast<double>(b[i]);
    });
}

template <typename T>
constexpr Microkernels<T> kMicrokernels{fir<T>, gather<T>, spread<T>, sum_squares<T>, dot<T>};

}  // namespace
}  // namespace wpnode::cpu
