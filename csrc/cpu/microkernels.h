// The arithmetic core of every CPU operator, compiled once per instruction set.
//
// A strided correlation splits into q ordinary ones, one per residue of the sample index modulo q
// (a phase), and its adjoint is, for each residue, one correlation with the weights reversed. So
// all operators reduce to
//
//     sum_{t < n_taps} weights[t] * in[j + t, c],   0 <= j < n_rows,
//
// summed over phases (gather) or kept apart (spread). `gather` and `spread` work on rows where they
// lie; `fir` works on packed rows, of any width, which it sees as one flat array.
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

// Rows narrower than this are packed for `fir`; no vector is wider.
inline constexpr std::int64_t kWideRow = 16;

// out[j] = initial[j] + the sum over phases. Strides count values from row to row.
template <typename T>
struct GatherRows {
    const Phase<T>* phases;
    std::int64_t n_phases, n_rows, width, in_stride;
    const T* initial;  // or null: zero
    std::int64_t initial_stride;
    T* out;
    std::int64_t out_stride;
    bool prefetch;  // ask for the inputs of later rows in advance
};

// out[j * row_stride + f * phase_stride] = the sum of phase f.
template <typename T>
struct SpreadRows {
    const Phase<T>* phases;
    std::int64_t n_phases, n_rows, width, in_stride;
    T* out;
    std::int64_t row_stride, phase_stride;
    bool prefetch;  // ask for later rows of the output in advance
    bool stream;    // the output is too large to be found in a cache later
};

// In all three, every element is summed in the order (phase, tap), so its bits do not depend on how
// rows are tiled or which lane it falls into.
template <typename T>
struct Microkernels {
    // One flat array of n_rows rows of `stride` values; `accumulate` adds to what is in `out`.
    void (*fir)(const Phase<T>* phases, std::int64_t n_phases, std::int64_t n_rows,
                std::int64_t stride, T* out, bool accumulate);
    void (*gather)(const GatherRows<T>& rows);
    void (*spread)(const SpreadRows<T>& rows);
    // Sum of squares in float64, interleaved partial sums folded in a fixed order.
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
