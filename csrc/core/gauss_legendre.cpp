#include "gauss_legendre.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <string>

// The nodes are cos(theta) with P_n(cos(theta)) = 0. Newton runs in theta, where the roots are
// nearly equidistant, and xi = sin^2(theta / 2), eta = cos^2(theta / 2) then carry full relative
// accuracy at both ends. `long double` absorbs the rounding of the recurrence where it is wider
// than double; where it is not, the result is a few ulp worse.

namespace wpnode::core {
namespace {

constexpr int kMaxNewtonSteps = 20;

struct LegendreAt {
    long double value;  // P_n(cos(theta))
    long double slope;  // sin(theta) * P_n'(cos(theta)) = -d/dtheta P_n(cos(theta))
};

LegendreAt legendre(int n, long double theta) {
    const long double x = std::cos(theta);
    long double previous = 1.0L;
    long double current = x;
    for (int k = 2; k <= n; ++k) {
        const long double next = ((2 * k - 1) * x * current - (k - 1) * previous) / k;
        previous = current;
        current = next;
    }
    return {current, n * (previous - x * current) / std::sin(theta)};
}

}  // namespace

GaussLegendre gauss_legendre(int n) {
    if (n < 1) {
        throw std::invalid_argument("`n` must be >= 1; got " + std::to_string(n) + ".");
    }
    const auto size = static_cast<std::size_t>(n);
    GaussLegendre rule{std::vector<double>(size), std::vector<double>(size),
                       std::vector<double>(size)};
    for (std::size_t k = 0; k < (size + 1) / 2; ++k) {
        const std::size_t mirror = size - 1 - k;
        long double theta = std::numbers::pi_v<long double> * (k + 0.75L) / (n + 0.5L);
        if (k != mirror) {
            for (int step = 0; step < kMaxNewtonSteps; ++step) {
                const LegendreAt at = legendre(n, theta);
                const long double change = at.value / at.slope;
                theta += change;
                if (std::abs(change) <= 2 * std::numeric_limits<long double>::epsilon() * theta) {
                    break;
                }
            }
        } else {
            theta = std::numbers::pi_v<long double> / 2;
        }
        const long double near = std::sin(theta / 2);
        const long double far = std::cos(theta / 2);
        // 2 / ((1 - x^2) P_n'(x)^2) on [-1, 1]; half of it on [0, 1].
        const long double slope = legendre(n, theta).slope;
        rule.xi[k] = rule.eta[mirror] = static_cast<double>(near * near);
        rule.eta[k] = rule.xi[mirror] = static_cast<double>(far * far);
        rule.weight[k] = rule.weight[mirror] = static_cast<double>(1 / (slope * slope));
    }
    return rule;
}

}  // namespace wpnode::core
