// Fuzzes the CPU operators behind the checks of their entry. Sizes and starts may be any int64; a
// call that passes the checks must stay inside its arrays and equal sums written out term by term.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "../../core/checked_geometry.h"
#include "../../cpu/ragged.h"
#include "../../cpu/uniform.h"
#include "../../cpu/weight_gradient.h"
#include "input.h"

using namespace wpnode;
using core::Geometry;
using cpu::AccumulatorOf;

namespace {

constexpr std::int64_t kMostElements = 1 << 12;
constexpr std::int64_t kMostTerms = 1 << 16;
constexpr double kScale = 0.5;

void in_order(std::int64_t n, std::int64_t, const cpu::RangeBody& body) { body(0, n); }

// Allocates exactly `count` values, so that the sanitizer sees an access one past the end.
template <typename S>
std::vector<S> draw(std::int64_t count, std::uint32_t& state) {
    std::vector<S> values;
    values.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
        state = state * 1664525u + 1013904223u;
        const double value = static_cast<double>(state >> 8) / (1 << 23) - 1.0;
        values.push_back(cpu::narrow<S>(static_cast<AccumulatorOf<S>>(value)));
    }
    return values;
}

template <typename S>
void compare(const char* name, const std::vector<S>& actual, const std::vector<double>& expected) {
    double scale = 1.0;
    for (const double value : expected) scale = std::max(scale, std::abs(value));
    const double rounding = sizeof(S) == 8 ? 1e-12 : sizeof(S) == 4 ? 1e-4 : 2e-2;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double error = std::abs(static_cast<double>(cpu::widen(actual[i])) - expected[i]);
        if (error <= rounding * scale) continue;
        std::printf("%s[%zu] is %g, not %g\n", name, i, static_cast<double>(cpu::widen(actual[i])),
                    expected[i]);
        std::abort();
    }
}

struct Problem {
    Geometry g;
    const std::int64_t* starts;  // null where uniform
    bool per_segment;

    // Calls body(sample index, segment index, weight index) for every term.
    template <typename Body>
    void each_term(const Body& body) const {
        for (std::int64_t b = 0; b < g.batch; ++b)
            for (std::int64_t k = 0; k < g.n_segments; ++k)
                for (std::int64_t i = 0; i <= g.ell; ++i)
                    for (std::int64_t d = 0; d < g.state; ++d) {
                        const std::int64_t n = (starts ? starts[k] : k * g.q) + i;
                        body((b * g.n_samples + n) * g.state + d,
                             (b * g.n_segments + k) * g.state + d,
                             (per_segment ? k * (g.ell + 1) : 0) + i);
                    }
    }
};

template <typename S>
void run(const Problem& problem, std::uint32_t seed) {
    using T = AccumulatorOf<S>;
    const Geometry& g = problem.g;
    const std::int64_t n_weights = (problem.per_segment ? g.n_segments : 1) * (g.ell + 1);
    const auto x = draw<S>(g.batch * g.n_samples * g.state, seed);
    const auto y = draw<S>(g.batch * g.n_segments * g.state, seed);
    const auto lhs = draw<T>(g.batch * g.n_segments * g.state, seed);
    const auto w = draw<T>(n_weights, seed);

    std::vector<double> sums(y.size()), back(x.size()), residual(y.size()), slope(x.size());
    std::vector<double> gw(w.size());
    for (std::size_t i = 0; i < lhs.size(); ++i) residual[i] = static_cast<double>(lhs[i]);
    problem.each_term([&](std::int64_t n, std::int64_t k, std::int64_t i) {
        const double sample = cpu::widen(x[n]), segment = cpu::widen(y[k]);
        sums[k] += static_cast<double>(w[i]) * sample;
        back[n] += static_cast<double>(w[i]) * segment;
        residual[k] += static_cast<double>(w[i]) * sample;
        gw[i] += sample * segment;
    });
    problem.each_term([&](std::int64_t n, std::int64_t k, std::int64_t i) {
        slope[n] += 2.0 * kScale * static_cast<double>(w[i]) * residual[k];
    });
    double loss = 0.0;
    for (const double r : residual) loss += kScale * r * r;

    std::vector<S> segments(y.size()), samples(x.size()), gradient(x.size());
    double fused, alone;
    // As in ops.cpp: one row a segment goes through the ragged kernels, which need starts.
    std::vector<std::int64_t> listed;
    const std::int64_t* starts = problem.starts;
    if (starts == nullptr && problem.per_segment) {
        for (std::int64_t k = 0; k < g.n_segments; ++k) listed.push_back(k * g.q);
        starts = listed.data();
    }
    if (starts) {
        const cpu::RaggedWeights<T> rows{starts, w.data(), problem.per_segment ? g.ell + 1 : 0};
        cpu::corr_ragged<S>(g, x.data(), rows, segments.data(), in_order);
        cpu::corr_t_ragged<S>(g, y.data(), rows, samples.data(), in_order);
        fused = cpu::weak_loss_ragged<S>(g, x.data(), lhs.data(), rows, kScale, gradient.data(),
                                         in_order);
        alone = cpu::weak_loss_ragged<S>(g, x.data(), lhs.data(), rows, kScale, nullptr, in_order);
    } else {
        cpu::corr_uniform<S>(g, x.data(), w.data(), segments.data(), in_order);
        cpu::corr_t_uniform<S>(g, y.data(), w.data(), samples.data(), in_order);
        fused = cpu::weak_loss_uniform<S>(g, x.data(), lhs.data(), w.data(), kScale,
                                          gradient.data(), in_order);
        alone =
            cpu::weak_loss_uniform<S>(g, x.data(), lhs.data(), w.data(), kScale, nullptr, in_order);
    }
    compare("corr", segments, sums);
    compare("corr_t", samples, back);
    compare("gradient", gradient, slope);
    compare("loss", std::vector<T>{static_cast<T>(fused), static_cast<T>(alone)}, {loss, loss});
    if constexpr (std::is_floating_point_v<S>) {
        std::vector<S> derivative(w.size());
        cpu::corr_w<S>(g, x.data(), y.data(), problem.starts, problem.per_segment,
                       derivative.data(), in_order);
        compare("corr_w", derivative, gw);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const auto flags = input.take<std::uint8_t>();
    const bool uniform = flags & 1, per_segment = flags & 2, sorted = flags & 4;
    const std::int64_t batch = input.integer(), n_samples = input.integer();
    const std::int64_t state = input.integer(), ell = input.integer(), q = input.integer();
    // As with tensors: sizes are not negative, and listed starts are an array that exists.
    if (batch < 0 || state < 0) return 0;
    std::vector<std::int64_t> starts;
    if (!uniform) {
        starts.resize(static_cast<std::size_t>(input.below(20)));
        for (std::int64_t& start : starts) start = input.integer();
        if (sorted) std::sort(starts.begin(), starts.end());
    }
    Problem problem{{}, uniform ? nullptr : starts.data(), per_segment};
    try {
        const auto n_starts =
            uniform ? std::nullopt : std::optional(static_cast<std::int64_t>(starts.size()));
        problem.g = core::checked_geometry(batch, n_samples, state, ell, q, n_starts);
        core::check_start_values(problem.starts, problem.g);
        if (per_segment) core::check_rows(problem.g);
    } catch (const std::invalid_argument&) {
        return 0;
    }
    const Geometry& g = problem.g;
    // All sums are empty: the operators return before they call a kernel.
    if (g.batch == 0 || g.state == 0 || g.n_samples == 0 || g.n_segments == 0) return 0;
    if (core::count_elements({g.batch, g.n_samples, g.state}) > kMostElements) return 0;
    if (core::count_elements({g.batch, g.n_segments, g.state, g.ell + 1}) > kMostTerms) return 0;
    const auto seed = input.take<std::uint32_t>();
    switch (flags >> 3 & 3) {
        case 0:
            run<double>(problem, seed);
            break;
        case 1:
            run<float>(problem, seed);
            break;
        case 2:
            run<cpu::BFloat16>(problem, seed);
            break;
        default:
            run<cpu::Half>(problem, seed);
    }
    return 0;
}
