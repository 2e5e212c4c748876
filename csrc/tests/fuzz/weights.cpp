// Fuzzes the weights behind their checks. Parameters may be any int64. The weights of both rules
// must add up to the integral of the test function, for any times.
#include "../../core/weights.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numbers>
#include <stdexcept>
#include <vector>

#include "../../core/sizes.h"
#include "input.h"

using namespace wpnode;

namespace {

constexpr std::int64_t kMostNodes = 1 << 9;

void expect_sum(const char* name, const double* w, std::int64_t count, std::int64_t p,
                double half) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < count; ++i) sum += w[i];
    const auto power = static_cast<double>(p);
    const double integral = half * std::sqrt(std::numbers::pi) *
                            std::exp(std::lgamma(power + 1.0) - std::lgamma(power + 1.5));
    if (std::abs(sum - integral) <= 1e-9 * integral) return;
    std::printf("%s: the weights add up to %.17g, not %.17g\n", name, sum, integral);
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::int64_t p = input.integer(), ell = input.integer(), d = input.integer();
    const auto rule = input.take<std::uint8_t>() & 1 ? core::Rule::kSpline : core::Rule::kLinear;
    try {
        core::check_parameters(p, ell, d);
    } catch (const std::invalid_argument&) {
        return 0;
    }
    if (core::count_elements({ell + 1}) > kMostNodes) return 0;
    const auto width = static_cast<std::size_t>(ell + 1);
    const auto power = static_cast<int>(p), order = static_cast<int>(d);

    std::vector<double> lhs(width), rhs(width);
    const auto dt = input.take<double>();
    try {
        core::uniform_weights(power, ell, dt, order, lhs.data(), rhs.data());
        if (dt > 1e-100 && dt < 1e100) {
            expect_sum("uniform", rhs.data(), ell + 1, p, 0.5 * static_cast<double>(ell) * dt);
        }
    } catch (const std::invalid_argument&) {  // not positive and finite
    }

    // Gaps of a factor up to 16 between neighbours; starts anywhere inside.
    std::vector<double> times(width + static_cast<std::size_t>(input.below(20)));
    double t = input.take<std::int16_t>();
    for (double& time : times) time = t += (1.0 + input.below(15)) / 16.0;
    std::vector<std::int64_t> starts(static_cast<std::size_t>(input.below(4)));
    const auto last = static_cast<std::int64_t>(times.size() - width);
    for (std::int64_t& start : starts) start = input.below(last);
    const auto count = static_cast<std::int64_t>(starts.size());
    std::vector<double> lhs_rows(starts.size() * width), rhs_rows(starts.size() * width);
    core::irregular_weights(power, ell, order, rule, times.data(), starts.data(), count,
                            lhs_rows.data(), rhs_rows.data());
    for (std::int64_t k = 0; k < count; ++k) {
        const double half = 0.5 * (times[starts[k] + ell] - times[starts[k]]);
        expect_sum("irregular", rhs_rows.data() + k * (ell + 1), ell + 1, p, half);
    }
    return 0;
}
