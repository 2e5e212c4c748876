// Weights and Gauss-Legendre rules against hand-computed values and exact identities.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/gauss_legendre.h"
#include "core/weights.h"

namespace {

using wpnode::core::GaussLegendre;
using wpnode::core::Rule;

int failures = 0;

void expect(bool holds, const std::string& what) {
    if (!holds) {
        ++failures;
        std::printf("FAILED: %s\n", what.c_str());
    }
}

void expect_near(double got, double wanted, double tolerance, const std::string& what) {
    expect(std::abs(got - wanted) <= tolerance,
           what + ": got " + std::to_string(got) + ", wanted " + std::to_string(wanted));
}

void expect_error(const std::function<void()>& call, const std::string& words) {
    try {
        call();
    } catch (const std::invalid_argument& error) {
        expect(std::string(error.what()).find(words) != std::string::npos,
               words + ": got " + error.what());
        return;
    }
    expect(false, words + ": no error");
}

struct Weights {
    std::vector<double> lhs, rhs;
};

Weights uniform(int p, std::int64_t ell, double dt, int d) {
    const auto size = static_cast<std::size_t>(ell + 1);
    Weights w{std::vector<double>(size), std::vector<double>(size)};
    wpnode::core::uniform_weights(p, ell, dt, d, w.lhs.data(), w.rhs.data());
    return w;
}

Weights irregular(int p, std::int64_t ell, int d, Rule rule, const std::vector<double>& t,
                  const std::vector<std::int64_t>& starts) {
    const std::size_t size = starts.size() * static_cast<std::size_t>(ell + 1);
    Weights w{std::vector<double>(size), std::vector<double>(size)};
    wpnode::core::irregular_weights(p, ell, d, rule, t.data(), starts.data(),
                                    static_cast<std::int64_t>(starts.size()), w.lhs.data(),
                                    w.rhs.data());
    return w;
}

// Steps between 0.2 and 1.8 from a fixed linear congruential generator.
std::vector<double> uneven_times(std::size_t size) {
    std::vector<double> t{-3.0};
    std::uint32_t state = 12345;
    while (t.size() < size) {
        state = state * 1664525u + 1013904223u;
        t.push_back(t.back() + 0.2 + 1.6 * (state / 4294967296.0));
    }
    return t;
}

// int_{-1}^{1} |phi^(d)(s)| ds, the total variation of phi^(d - 1).
double derivative_size(int p, int d) {
    if (d == 1) {
        return 2.0;
    }
    const double s_squared = 1.0 / (2 * p - 1);
    return 8.0 * p * std::sqrt(s_squared) * std::pow(1.0 - s_squared, p - 1);
}

// int_{-1}^{1} s^m (1 - s^2)^p ds for even m.
double even_moment(int p, int m) {
    return std::exp(std::lgamma(0.5 * (m + 1)) + std::lgamma(p + 1.0) -
                    std::lgamma(0.5 * (m + 1) + p + 1.0));
}

void test_gauss_legendre() {
    const GaussLegendre two = wpnode::core::gauss_legendre(2);
    expect_near(two.xi[0], 0.5 - 0.5 / std::sqrt(3.0), 1e-16, "two nodes");
    const GaussLegendre three = wpnode::core::gauss_legendre(3);
    expect(three.xi[1] == 0.5 && three.eta[1] == 0.5, "middle node");
    expect_near(three.eta[0], 0.5 + 0.5 * std::sqrt(0.6), 2e-16, "three nodes");
    expect_near(three.weight[1], 4.0 / 9.0, 1e-16, "three weights");
    for (int n = 1; n <= wpnode::core::kMaxP + 2; ++n) {
        const GaussLegendre rule = wpnode::core::gauss_legendre(n);
        for (int degree = 0; degree < 2 * n; ++degree) {
            double in_xi = 0.0;
            double in_eta = 0.0;
            for (std::size_t k = 0; k < rule.xi.size(); ++k) {
                in_xi += rule.weight[k] * std::pow(rule.xi[k], degree);
                in_eta += rule.weight[k] * std::pow(rule.eta[k], degree);
            }
            const std::string what = std::to_string(n) + " nodes, degree " + std::to_string(degree);
            expect_near(in_xi * (degree + 1), 1.0, 4e-15, what);
            expect_near(in_eta * (degree + 1), 1.0, 4e-15, what + ", mirrored");
        }
    }
    expect_error([] { wpnode::core::gauss_legendre(0); }, "`n` must be >= 1; got 0.");
}

void test_hand_computed_weights() {
    const Weights first = uniform(1, 2, 1.0, 1);
    const Weights second = uniform(2, 2, 1.0, 2);
    const double first_lhs[] = {2.0 / 3.0, 0.0, -2.0 / 3.0};
    const double first_rhs[] = {0.25, 5.0 / 6.0, 0.25};
    const double second_lhs[] = {-1.0, 2.0, -1.0};
    for (std::size_t i = 0; i < 3; ++i) {
        expect_near(first.lhs[i], first_lhs[i], 4e-16, "p = 1, d = 1, lhs");
        expect_near(first.rhs[i], first_rhs[i], 4e-16, "p = 1, d = 1, rhs");
        expect_near(second.lhs[i], second_lhs[i], 4e-15, "p = 2, d = 2, lhs");
    }
}

void test_uniform_identities() {
    const double dt = 0.02;
    for (const int p : {2, 3, 8, 31, 64}) {
        for (const std::int64_t ell : {2, 4, 50, 400}) {
            for (const int d : {1, 2}) {
                const Weights w = uniform(p, ell, dt, d);
                const std::string what = "p " + std::to_string(p) + " ell " + std::to_string(ell);
                const double half_length = 0.5 * dt * static_cast<double>(ell);
                double lhs_sum = 0.0;
                double lhs_size = 0.0;
                double rhs_sum = 0.0;
                const double parity = d == 1 ? -1.0 : 1.0;
                for (std::size_t i = 0; i < w.lhs.size(); ++i) {
                    lhs_sum += w.lhs[i];
                    lhs_size += std::abs(w.lhs[i]);
                    rhs_sum += w.rhs[i];
                    const std::size_t mirror = w.lhs.size() - 1 - i;
                    expect(w.lhs[i] == parity * w.lhs[mirror], what + ": lhs symmetry");
                    expect(w.rhs[i] == w.rhs[mirror], what + ": rhs symmetry");
                }
                expect_near(lhs_sum / lhs_size, 0.0, 4e-14, what + ": constants");
                expect_near(rhs_sum / (half_length * even_moment(p, 0)), 1.0, 1e-13,
                            what + ": integral of phi");
            }
        }
    }
}

// sum_i w[i] * s_i^m over the samples of one segment.
double against_power(const double* w, const double* times, std::int64_t ell, int m) {
    double sum = 0.0;
    for (std::int64_t i = 0; i <= ell; ++i) {
        const double s =
            ((times[i] - times[0]) - (times[ell] - times[i])) / (times[ell] - times[0]);
        sum += w[i] * std::pow(s, m);
    }
    return sum;
}

// The integrals of s^m, known in closed form, up to the degree the rule interpolates exactly.
void check_polynomials(int p, std::int64_t ell, int d, Rule rule, int max_degree) {
    const std::vector<double> t = uneven_times(60);
    const std::vector<std::int64_t> starts{0, 3, 9};
    const Weights w = irregular(p, ell, d, rule, t, starts);
    for (std::size_t k = 0; k < starts.size(); ++k) {
        const std::size_t row = k * static_cast<std::size_t>(ell + 1);
        const double* times = t.data() + starts[k];
        const double half = 0.5 * (times[ell] - times[0]);
        const double lhs_unit = std::pow(half, 1 - d);
        for (int m = 0; m <= max_degree; ++m) {
            const double phi_moment = m % 2 == 0 ? even_moment(p, m) : 0.0;
            // d integrations by parts; the sign of w_lhs leaves a minus for both d.
            const int falling = d == 1 ? m : m * (m - 1);
            const double dphi_moment =
                m >= d && (m - d) % 2 == 0 ? -falling * even_moment(p, m - d) : 0.0;
            const std::string what = "p " + std::to_string(p) + " ell " + std::to_string(ell) +
                                     " d " + std::to_string(d) + " s^" + std::to_string(m);
            expect_near(against_power(&w.rhs[row], times, ell, m) / half, phi_moment, 2e-14,
                        what + " rhs");
            expect_near(against_power(&w.lhs[row], times, ell, m) / lhs_unit, dphi_moment,
                        2e-14 * derivative_size(p, d), what + " lhs");
        }
    }
}

void test_irregular_rules_are_exact_for_polynomials() {
    for (const std::int64_t ell : {2, 4, 6, 50}) {
        for (const int p : {2, 3, 8, 32, 64}) {
            for (const int d : {1, 2}) {
                check_polynomials(p, ell, d, Rule::kLinear, 1);
                check_polynomials(p, ell, d, Rule::kSpline, ell == 2 ? 2 : 3);
            }
        }
        check_polynomials(1, ell, 1, Rule::kLinear, 1);
        check_polynomials(1, ell, 1, Rule::kSpline, ell == 2 ? 2 : 3);
    }
}

void test_rows_do_not_depend_on_each_other() {
    const std::vector<double> t = uneven_times(40);
    const Weights all = irregular(8, 10, 1, Rule::kSpline, t, {4, 0, 29});
    const Weights last = irregular(8, 10, 1, Rule::kSpline, t, {29});
    for (std::size_t i = 0; i <= 10; ++i) {
        expect(all.lhs[22 + i] == last.lhs[i] && all.rhs[22 + i] == last.rhs[i], "row alone");
    }
    irregular(8, 10, 1, Rule::kLinear, t, {});
}

void test_linear_rule_on_uniform_times() {
    std::vector<double> t(51);
    for (std::size_t i = 0; i < t.size(); ++i) {
        t[i] = static_cast<double>(i) / 64.0;
    }
    const Weights general = irregular(7, 50, 1, Rule::kLinear, t, {0});
    const Weights special = uniform(7, 50, 1.0 / 64.0, 1);
    for (std::size_t i = 0; i < t.size(); ++i) {
        expect_near(general.lhs[i], special.lhs[i], 1e-15, "lhs on uniform times");
        expect_near(general.rhs[i], special.rhs[i], 1e-16, "rhs on uniform times");
    }
}

void test_errors() {
    expect_error([] { uniform(8, 51, 0.1, 1); }, "`ell` must be an even integer >= 2; got 51.");
    expect_error([] { uniform(8, 0, 0.1, 1); }, "`ell` must be an even integer >= 2; got 0.");
    expect_error([] { uniform(0, 50, 0.1, 1); }, "`p` must be an integer from 1 to 64; got 0.");
    expect_error([] { uniform(65, 50, 0.1, 1); }, "`p` must be an integer from 1 to 64; got 65.");
    expect_error([] { uniform(1, 50, 0.1, 2); }, "`p` must be >= `d` = 2; got 1.");
    expect_error([] { uniform(8, 50, 0.1, 3); }, "`d` must be 1 or 2; got 3.");
    expect_error([] { uniform(8, 50, -0.5, 1); }, "`dt` must be positive and finite; got -0.5.");
    expect_error([] { uniform(8, 50, NAN, 1); }, "`dt` must be positive and finite; got nan.");
    expect_error([] { irregular(8, 3, 1, Rule::kLinear, uneven_times(9), {0}); }, "`ell` must be");
}

}  // namespace

int main() {
    test_gauss_legendre();
    test_hand_computed_weights();
    test_uniform_identities();
    test_irregular_rules_are_exact_for_polynomials();
    test_rows_do_not_depend_on_each_other();
    test_linear_rule_on_uniform_times();
    test_errors();
    return failures == 0 ? 0 : 1;
}
