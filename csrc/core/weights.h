// Quadrature weights of the weak form with the test function phi(s) = (1 - s^2)^p.
//
// A segment has ell + 1 samples at times t_0 < ... < t_ell, mapped to s in [-1, 1]; H is half its
// length in time. With the interpolant basis L_i of the chosen rule
//
//     w_rhs[i] = H * int L_i(s) phi(s) ds
//     w_lhs[i] = (-1)^(d + 1) * H^(1 - d) * int L_i(s) phi^(d)(s) ds,   d = 1 or 2,
//
// so that sum_i w_lhs[i] u_i + w_rhs[i] f_i is close to 0 when f is the d-th time derivative of u.
#pragma once

#include <cstdint>

namespace wpnode::core {

inline constexpr int kMaxP = 64;

enum class Rule {
    kLinear,  // piecewise-linear interpolant
    kSpline,  // not-a-knot cubic spline through the segment's own samples; a parabola for ell = 2
};

// Throws std::invalid_argument unless d is 1 or 2, d <= p <= kMaxP and ell is even, >= 2 and
// less than kMaxElements.
void check_parameters(std::int64_t p, std::int64_t ell, std::int64_t d);

// Linear rule on equidistant samples; both outputs [ell + 1]. The symmetries of phi hold to the
// bit. Relative error of each weight (d = 1) or relative to the largest weight (w_lhs with d = 2):
// about p * 4e-16.
// Throws std::invalid_argument on bad parameters or when dt is not positive and finite.
void uniform_weights(int p, std::int64_t ell, double dt, int d, double* w_lhs, double* w_rhs);

// One row of weights a segment; both outputs [n_segments, ell + 1]. Segment k has the samples
// starts[k], ..., starts[k] + ell of t, which must lie inside t and be finite and increasing
// (not checked here). Errors of about p * 4e-16 relative to H * int phi and
// H^(1 - d) * int |phi^(d)|: a cell that contains a zero of phi^(d) is not split there.
// Throws std::invalid_argument on bad parameters.
void irregular_weights(int p, std::int64_t ell, int d, Rule rule, const double* t,
                       const std::int64_t* starts, std::int64_t n_segments, double* w_lhs,
                       double* w_rhs);

}  // namespace wpnode::core
