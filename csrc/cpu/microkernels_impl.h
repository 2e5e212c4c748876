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

// Sum of terms in float64: vectors(i) gives as many from i on as a register holds, single(i) one.
// The partial sums hide the latency of an addition in the widest registers; they are as many, and
// folded in the same order, for every instruction set.
template <typename Vectors, typename Single>
double fold(std::int64_t count, const Vectors& vectors, const Single& single) {
    using V = Vector<double>;
    constexpr int kSums = 32, kVectors = kSums / V::kLanes;
    typename V::Aligned partial[kVectors] = {};
    std::int64_t i = 0;
    for (; i + kSums <= count; i += kSums)
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) partial[v] += vectors(i + v * V::kLanes);
    double sums[kSums];
    for (int v = 0; v < kVectors; ++v) V::store(sums + v * V::kLanes, partial[v]);
    for (int s = 0; i < count; ++i, ++s) sums[s] += single(i);
    for (int half = kSums / 2; half > 0; half /= 2)
        for (int s = 0; s < half; ++s) sums[s] += sums[s + half];
    return sums[0];
}

template <typename T>
double sum_squares(const T* values, std::int64_t count) {
    const auto square = [](auto x) { return x * x; };
    return fold(
        count, [=](std::int64_t i) { return square(load_wide(values + i)); },
        [=](std::int64_t i) { return square(static_cast<double>(values[i])); });
}

template <typename T>
double dot(const T* a, const T* b, std::int64_t count) {
    return fold(
        count, [=](std::int64_t i) { return load_wide(a + i) * load_wide(b + i); },
        [=](std::int64_t i) { return static_cast<double>(a[i]) * static_cast<double>(b[i]); });
}

template <typename T>
constexpr Microkernels<T> kMicrokernels{fir<T>, gather<T>, spread<T>, sum_squares<T>, dot<T>};

}  // namespace
}  // namespace wpnode::cpu
