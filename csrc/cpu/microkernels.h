// The arithmetic core of every CPU operator, compiled once per instruction set.
//
// All operators reduce to one primitive on packed scratch rows. With rows of `stride` elements,
//
//     out[j, c] (+)= sum over phases, sum_{t < n_taps} weights[t] * in[j + t, c],   0 <= j <
//     n_rows,
//
// because a strided correlation splits into q ordinary ones (one per residue of the sample index
// modulo q), and its adjoint is, for each residue, one correlation with the weights reversed.
#pragma once

#include <cstdint>

namespace wpnode::cpu {

template <typename T>
struct Phase {
    const T* weights;     // [n_taps]
    std::int64_t n_taps;  // >= 0
    const T* in;          // row 0 of this phase
};

// What a caller must guarantee about scratch: `in` and `out` are readable for kOverrun elements
// past their last row, since rows are processed as one flat array in whole vectors.
inline constexpr std::int64_t kOverrun = 64;

template <typename T>
struct Microkernels {
    // The primitive above; `accumulate` adds to what is in `out`. Every element is summed in the
    // order (phase, tap), so its bits do not depend on how rows are tiled or which lane it falls
    // into.
    void (*fir)(const Phase<T>* phases, std::int64_t n_phases, std::int64_t n_rows,
                std::int64_t stride, T* out, bool accumulate);
    // Sum of squares in float64, eight interleaved partial sums folded in a fixed order.
    double (*sum_squares)(const T* values, std::int64_t count);
    // Dot product in float64, the same order.
    double (*dot)(const T* a, const T* b, std::int64_t count);
};

// Tables of the instruction sets compiled in; microkernels<T>() returns the one chosen for this
// machine (capability.h).
template <typename T>
const Microkernels<T>& microkernels_baseline();
template <typename T>
const Microkernels<T>& microkernels_avx2();
template <typename T>
const Microkernels<T>& microkernels_avx512();
template <typename T>
const Microkernels<T>& microkernels();

}  // namespace wpnode::cpu
