#include "weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "gauss_legendre.h"
#include "sizes.h"

// Every weight is a sum of Gauss-Legendre integrals over single cells, exact because L_i * phi^(d)
// is a polynomial there. 1 - s^2 is the product of the distances to the two ends of the segment,
// both sums of positive numbers, so nothing cancels; see docs/notes/weights.md.

namespace wpnode::core {
namespace {

// Exact for L_i * phi: degree 2p + 1 (linear) and 2p + 3 (cubic).
constexpr int kMaxNodes = kMaxP + 2;

double power(double x, int exponent) {
    double result = 1.0;
    for (double square = x; exponent > 0; exponent >>= 1, square *= square) {
        if (exponent & 1) {
            result *= square;
        }
    }
    return result;
}

// phi^(d)(s) = low * base^(p - d), base = 1 - s^2: the polynomial factor `low`.
double derivative_factor(int p, int d, double s) {
    return d == 1 ? -2.0 * p * s : 2.0 * p * ((2.0 * p - 1.0) * s * s - 1.0);
}

// Shape functions of one cell at the quadrature nodes, times the quadrature weights.
// The interpolant on a cell of width g (in s) with end values y and end second derivatives M is
// eta*y_0 + xi*y_1 + g^2 * (curve_0*M_0 + curve_1*M_1).
struct CellRule {
    int n_nodes = 0;
    int n_shapes = 0;                                         // 2 (linear) or 4 (cubic)
    std::array<double, kMaxNodes> xi{}, eta{};                // [n_nodes]
    std::array<std::array<double, kMaxNodes>, 4> shapes{{}};  // eta, xi, curve_0, curve_1
};

CellRule make_cell_rule(int p, Rule rule) {
    CellRule cell;
    cell.n_nodes = rule == Rule::kLinear ? p + 1 : p + 2;
    cell.n_shapes = rule == Rule::kLinear ? 2 : 4;
    const GaussLegendre gauss = gauss_legendre(cell.n_nodes);
    for (std::size_t k = 0; k < gauss.xi.size(); ++k) {
        const double xi = gauss.xi[k];
        const double eta = gauss.eta[k];
        cell.xi[k] = xi;
        cell.eta[k] = eta;
        cell.shapes[0][k] = gauss.weight[k] * eta;
        cell.shapes[1][k] = gauss.weight[k] * xi;
        // (eta^3 - eta) / 6 with the factor 1 - eta^2 = xi * (1 + eta), and its mirror image.
        cell.shapes[2][k] = -gauss.weight[k] * eta * xi * (1.0 + eta) / 6.0;
        cell.shapes[3][k] = -gauss.weight[k] * xi * eta * (1.0 + xi) / 6.0;
    }
    return cell;
}

using Moments = std::array<double, 4>;  // int shape * g over a cell of unit width

// Moments of phi and phi^(d) on the cell of width `width` that lies `left` from s = -1 and `right`
// from s = 1.
void cell_moments(const CellRule& cell, int p, int d, double left, double right, double width,
                  Moments& phi_moments, Moments& dphi_moments) {
    std::array<double, kMaxNodes> phi;
    std::array<double, kMaxNodes> dphi;
    for (int k = 0; k < cell.n_nodes; ++k) {
        const double from_left = left + width * cell.xi[k];
        const double from_right = right + width * cell.eta[k];
        const double base = from_left * from_right;
        const double s = 0.5 * (from_left - from_right);
        const double lower = power(base, p - d);
        phi[k] = lower * (d == 1 ? base : base * base);
        dphi[k] = lower * derivative_factor(p, d, s);
    }
    for (int m = 0; m < cell.n_shapes; ++m) {
        double phi_sum = 0.0;
        double dphi_sum = 0.0;
        for (int k = 0; k < cell.n_nodes; ++k) {
            phi_sum += cell.shapes[m][k] * phi[k];
            dphi_sum += cell.shapes[m][k] * dphi[k];
        }
        phi_moments[m] = phi_sum;
        dphi_moments[m] = dphi_sum;
    }
}

// Turns integrals against second derivatives into integrals against nodal values.
//
// The not-a-knot spline has second derivatives M = T^-1 R y; T is tridiagonal in M_1 .. M_{ell-1}
// after the end conditions M_0 = M_1 + (g_0/g_1)(M_1 - M_2) and its mirror image. For a functional
// alpha . y + beta . M the weights are alpha + R^T T^-T beta: one transposed solve, in which T
// (row-dominant for any spacing) needs no pivoting.
class SplineFold {
  public:
    explicit SplineFold(std::size_t ell)
        : ell_(ell), lower_(ell), diagonal_(ell), upper_(ell), scale_(ell, 1.0) {}

    // width: [ell] cell widths. Call before `fold`.
    void factor(const std::vector<double>& width) {
        width_ = &width;
        const std::size_t last = ell_ - 1;
        if (ell_ == 2) {
            diagonal_[1] = 3.0 * (width[0] + width[1]);
            return;
        }
        for (std::size_t i = 1; i <= last; ++i) {
            lower_[i] = width[i - 1];
            diagonal_[i] = 2.0 * (width[i - 1] + width[i]);
            upper_[i] = width[i];
        }
        // First and last row after elimination of M_0 and M_ell, times scale_.
        scale_[1] = width[1] / (width[0] + width[1]);
        diagonal_[1] = width[0] + 2.0 * width[1];
        upper_[1] = width[1] - width[0];
        scale_[last] = width[last - 1] / (width[last - 1] + width[last]);
        diagonal_[last] = width[last] + 2.0 * width[last - 1];
        lower_[last] = width[last - 1] - width[last];
        for (std::size_t i = 2; i <= last; ++i) {
            upper_[i - 1] /= diagonal_[i - 1];
            diagonal_[i] -= upper_[i - 1] * lower_[i];
        }
    }

    // alpha, beta: [ell + 1]; alpha becomes the weights, beta is used up.
    void fold(double* alpha, double* beta) const {
        const std::vector<double>& width = *width_;
        const std::size_t last = ell_ - 1;
        if (ell_ == 2) {
            beta[1] += beta[0] + beta[2];
        } else {
            const double left = width[0] / width[1];
            beta[1] += (1.0 + left) * beta[0];
            beta[2] -= left * beta[0];
            const double right = width[last] / width[last - 1];
            beta[last] += (1.0 + right) * beta[ell_];
            beta[last - 1] -= right * beta[ell_];
        }
        for (std::size_t i = 2; i <= last; ++i) {
            beta[i] -= upper_[i - 1] * beta[i - 1];
        }
        beta[last] /= diagonal_[last];
        for (std::size_t i = last - 1; i >= 1; --i) {
            beta[i] = (beta[i] - lower_[i + 1] * beta[i + 1]) / diagonal_[i];
        }
        for (std::size_t i = 1; i <= last; ++i) {
            const double pull = 6.0 * scale_[i] * beta[i];
            alpha[i - 1] += pull / width[i - 1];
            alpha[i] -= pull / width[i - 1] + pull / width[i];
            alpha[i + 1] += pull / width[i];
        }
    }

  private:
    std::size_t ell_;
    std::vector<double> lower_, diagonal_, upper_;  // row i of T; upper_ holds the multipliers
    std::vector<double> scale_;                     // row i of R is scale_[i] * second difference
    const std::vector<double>* width_ = nullptr;
};

}  // namespace

void check_parameters(std::int64_t p, std::int64_t ell, std::int64_t d) {
    if (d != 1 && d != 2) {
        throw std::invalid_argument("`d` must be 1 or 2; got " + std::to_string(d) + ".");
    }
    if (p < 1 || p > kMaxP) {
        throw std::invalid_argument("`p` must be an integer from 1 to " + std::to_string(kMaxP) +
                                    "; got " + std::to_string(p) + ".");
    }
    if (p < d) {
        throw std::invalid_argument("`p` must be >= `d` = " + std::to_string(d) + "; got " +
                                    std::to_string(p) +
                                    ". The boundary terms vanish only for p >= d; raise `p`.");
    }
    if (ell < 2 || ell % 2 != 0) {
        throw std::invalid_argument("`ell` must be an even integer >= 2; got " +
                                    std::to_string(ell) + ".");
    }
    if (ell >= kMaxElements) {
        throw std::invalid_argument("`ell` must be less than 2^56; got " + std::to_string(ell) +
                                    ".");
    }
}

void uniform_weights(int p, std::int64_t ell, double dt, int d, double* w_lhs, double* w_rhs) {
    check_parameters(p, ell, d);
    if (!(dt > 0.0) || !std::isfinite(dt)) {
        std::ostringstream message;
        message << "`dt` must be positive and finite; got " << dt << ".";
        throw std::invalid_argument(message.str());
    }
    const GaussLegendre gauss = gauss_legendre(p + 1);
    const std::int64_t half = ell / 2;  // s = 0 is sample `half`; cells have width 1 / half
    const double half_squared = static_cast<double>(half) * static_cast<double>(half);
    const double lhs_scale = d == 1 ? 1.0 / half_squared : -1.0 / (half_squared * dt);

    // Left half: the cell between samples j and j + 1 gives eta to j and xi to j + 1.
    std::fill(w_lhs, w_lhs + ell + 1, 0.0);
    std::fill(w_rhs, w_rhs + ell + 1, 0.0);
    for (std::int64_t j = 0; j < half; ++j) {
        double lhs[2] = {0.0, 0.0};
        double rhs[2] = {0.0, 0.0};
        for (std::size_t k = 0; k < gauss.xi.size(); ++k) {
            const double xi = gauss.xi[k];
            const double eta = gauss.eta[k];
            const double from_left = static_cast<double>(j) + xi;
            const double from_right = static_cast<double>(ell - 1 - j) + eta;
            const double from_centre = static_cast<double>(half - 1 - j) + eta;
            const double base = from_left * from_right / half_squared;
            const double lower = gauss.weight[k] * power(base, p - d);
            const double phi = lower * (d == 1 ? base : base * base);
            // The 1 / half in s = -from_centre / half is part of lhs_scale for d = 1.
            const double dphi =
                lower * (d == 1 ? derivative_factor(p, d, -from_centre)
                                : derivative_factor(p, d, from_centre / static_cast<double>(half)));
            lhs[0] += eta * dphi;
            lhs[1] += xi * dphi;
            rhs[0] += eta * phi;
            rhs[1] += xi * phi;
        }
        for (std::int64_t side = 0; side < 2; ++side) {
            w_lhs[j + side] += lhs_scale * lhs[side];
            w_rhs[j + side] += dt * rhs[side];
        }
    }

    // phi^(d) is odd for d = 1 and even for d = 2; the centre gets both of its cells.
    const double parity = d == 1 ? -1.0 : 1.0;
    w_lhs[half] = d == 1 ? 0.0 : 2.0 * w_lhs[half];
    w_rhs[half] *= 2.0;
    for (std::int64_t i = 0; i < half; ++i) {
        w_lhs[ell - i] = parity * w_lhs[i];
        w_rhs[ell - i] = w_rhs[i];
    }
}

void irregular_weights(int p, std::int64_t ell, int d, Rule rule, const double* t,
                       const std::int64_t* starts, std::int64_t n_segments, double* w_lhs,
                       double* w_rhs) {
    check_parameters(p, ell, d);
    if (n_segments == 0) return;  // nothing to write; `ell` may be too large to allocate
    const CellRule cell = make_cell_rule(p, rule);
    const auto n_cells = static_cast<std::size_t>(ell);
    std::vector<double> width(n_cells);
    std::vector<double> lhs_curve(n_cells + 1);
    std::vector<double> rhs_curve(n_cells + 1);
    SplineFold spline(n_cells);

    for (std::int64_t k = 0; k < n_segments; ++k) {
        const double* times = t + starts[k];
        double* lhs = w_lhs + k * (ell + 1);
        double* rhs = w_rhs + k * (ell + 1);
        const double half_length = 0.5 * (times[n_cells] - times[0]);
        const double lhs_scale = d == 1 ? 1.0 : -1.0 / half_length;

        std::fill(lhs, lhs + ell + 1, 0.0);
        std::fill(rhs, rhs + ell + 1, 0.0);
        std::fill(lhs_curve.begin(), lhs_curve.end(), 0.0);
        std::fill(rhs_curve.begin(), rhs_curve.end(), 0.0);
        for (std::size_t j = 0; j < n_cells; ++j) {
            const double left = (times[j] - times[0]) / half_length;
            const double right = (times[n_cells] - times[j + 1]) / half_length;
            width[j] = (times[j + 1] - times[j]) / half_length;
            Moments phi;
            Moments dphi;
            cell_moments(cell, p, d, left, right, width[j], phi, dphi);
            const double rhs_width = half_length * width[j];
            const double lhs_width = lhs_scale * width[j];
            for (std::size_t side = 0; side < 2; ++side) {
                rhs[j + side] += rhs_width * phi[side];
                lhs[j + side] += lhs_width * dphi[side];
            }
            if (rule == Rule::kSpline) {
                const double squared = width[j] * width[j];
                for (std::size_t side = 0; side < 2; ++side) {
                    rhs_curve[j + side] += rhs_width * squared * phi[2 + side];
                    lhs_curve[j + side] += lhs_width * squared * dphi[2 + side];
                }
            }
        }
        if (rule == Rule::kSpline) {
            spline.factor(width);
            spline.fold(rhs, rhs_curve.data());
            spline.fold(lhs, lhs_curve.data());
        }
    }
}

}  // namespace wpnode::core
