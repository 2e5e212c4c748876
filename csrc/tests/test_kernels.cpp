// CPU kernels against sums written out as their definitions say, over layouts that exercise every
// tail: narrow and wide states, q below, at and above ell, one segment, several tiles, repeated
// starts.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "../cpu/ragged.h"
#include "../cpu/uniform.h"
#include "../cpu/weight_gradient.h"

using namespace wpnode;
using core::Geometry;
using cpu::AccumulatorOf;

namespace {

int failures = 0;

void expect(bool condition, const char* what, const Geometry& g) {
    if (condition) return;
    ++failures;
    std::printf("FAILED: %s (N %ld, D %ld, K %ld, ell %ld, q %ld)\n", what,
                static_cast<long>(g.n_samples), static_cast<long>(g.state),
                static_cast<long>(g.n_segments), static_cast<long>(g.ell), static_cast<long>(g.q));
}

// Hands every tile to the next of three threads, in one piece each.
void on_threads(std::int64_t n, std::int64_t, const cpu::RangeBody& body) {
    std::vector<std::thread> threads;
    for (std::int64_t i = 0; i < 3; ++i)
        threads.emplace_back([&, i] { body(n * i / 3, n * (i + 1) / 3); });
    for (auto& thread : threads) thread.join();
}

void in_order(std::int64_t n, std::int64_t, const cpu::RangeBody& body) { body(0, n); }

template <typename S>
std::vector<S> random_values(std::int64_t n, std::mt19937& engine) {
    std::normal_distribution<float> normal;
    std::vector<S> values(n);
    for (auto& x : values) x = cpu::narrow<S>(static_cast<AccumulatorOf<S>>(normal(engine)));
    return values;
}

template <typename S>
constexpr double tolerance() {
    if constexpr (std::is_same_v<S, double>) return 1e-12;
    if constexpr (std::is_same_v<S, float>) return 1e-5;
    return 2e-2;
}

template <typename S>
bool near(const std::vector<S>& actual, const std::vector<double>& expected) {
    double scale = 1e-30, error = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
        scale = std::max(scale, std::abs(expected[i]));
        error = std::max(error, std::abs(static_cast<double>(cpu::widen(actual[i])) - expected[i]));
    }
    return error <= tolerance<S>() * scale;
}

// The trilinear form term by term: body(b, k, i, sample index, segment index, weight index).
template <typename Body>
void each_term(const Geometry& g, const std::int64_t* starts, bool per_segment, const Body& body) {
    for (std::int64_t b = 0; b < g.batch; ++b)
        for (std::int64_t k = 0; k < g.n_segments; ++k)
            for (std::int64_t i = 0; i <= g.ell; ++i)
                for (std::int64_t d = 0; d < g.state; ++d) {
                    const std::int64_t n = (starts ? starts[k] : k * g.q) + i;
                    body((b * g.n_samples + n) * g.state + d, (b * g.n_segments + k) * g.state + d,
                         (per_segment ? k * (g.ell + 1) : 0) + i);
                }
}

template <typename S>
void check_layout(const Geometry& g, const std::vector<std::int64_t>* starts, bool per_segment) {
    using T = AccumulatorOf<S>;
    std::mt19937 engine(7);
    const std::int64_t n_weights = (per_segment ? g.n_segments : 1) * (g.ell + 1);
    const auto x = random_values<S>(g.batch * g.n_samples * g.state, engine);
    const auto y = random_values<S>(g.batch * g.n_segments * g.state, engine);
    const auto lhs = random_values<T>(g.batch * g.n_segments * g.state, engine);
    const auto w = random_values<T>(n_weights, engine);
    const std::int64_t* s = starts ? starts->data() : nullptr;
    const double scale = 0.25;

    std::vector<double> corr(y.size()), corr_t(x.size()), corr_w(n_weights), slope(x.size());
    each_term(g, s, per_segment, [&](std::int64_t n, std::int64_t k, std::int64_t i) {
        corr[k] += static_cast<double>(w[i]) * cpu::widen(x[n]);
        corr_t[n] += static_cast<double>(w[i]) * cpu::widen(y[k]);
        corr_w[i] += static_cast<double>(cpu::widen(y[k])) * cpu::widen(x[n]);
    });
    double loss = 0;
    for (std::size_t k = 0; k < corr.size(); ++k) loss += scale * std::pow(lhs[k] + corr[k], 2);
    each_term(g, s, per_segment, [&](std::int64_t n, std::int64_t k, std::int64_t i) {
        slope[n] += 2 * scale * w[i] * (lhs[k] + corr[k]);
    });

    std::vector<S> first_gradient;
    double first_loss = 0;
    for (const cpu::ParallelFor& parallel_for :
         {cpu::ParallelFor(in_order), cpu::ParallelFor(on_threads)}) {
        std::vector<S> segments(y.size()), samples(x.size()), gradient(x.size());
        double value, value_alone;
        if (starts) {
            const cpu::RaggedWeights<T> rows{s, w.data(), per_segment ? g.ell + 1 : 0};
            cpu::corr_ragged<S>(g, x.data(), rows, segments.data(), parallel_for);
            cpu::corr_t_ragged<S>(g, y.data(), rows, samples.data(), parallel_for);
            value = cpu::weak_loss_ragged<S>(g, x.data(), lhs.data(), rows, scale, gradient.data(),
                                             parallel_for);
            value_alone = cpu::weak_loss_ragged<S>(g, x.data(), lhs.data(), rows, scale, nullptr,
                                                   parallel_for);
        } else {
            cpu::corr_uniform<S>(g, x.data(), w.data(), segments.data(), parallel_for);
            cpu::corr_t_uniform<S>(g, y.data(), w.data(), samples.data(), parallel_for);
            value = cpu::weak_loss_uniform<S>(g, x.data(), lhs.data(), w.data(), scale,
                                              gradient.data(), parallel_for);
            value_alone = cpu::weak_loss_uniform<S>(g, x.data(), lhs.data(), w.data(), scale,
                                                    nullptr, parallel_for);
        }
        expect(near(segments, corr), "corr", g);
        expect(near(samples, corr_t), "corr_t", g);
        expect(near(gradient, slope), "gradient", g);
        expect(std::abs(value - loss) <= tolerance<S>() * loss, "loss", g);
        expect(value == value_alone, "loss alone has the same bits", g);
        if constexpr (std::is_floating_point_v<S>) {
            std::vector<S> gw(n_weights);
            cpu::corr_w<S>(g, x.data(), y.data(), s, per_segment, gw.data(), parallel_for);
            expect(near(gw, corr_w), "corr_w", g);
            if (first_gradient.empty()) {
                first_gradient = gradient;
                first_loss = value;
            }
            expect(first_gradient == gradient && first_loss == value, "same bits on threads", g);
        }
    }
}

void check_all(const Geometry& g, const std::vector<std::int64_t>* starts, bool per_segment) {
    check_layout<double>(g, starts, per_segment);
    check_layout<float>(g, starts, per_segment);
    check_layout<cpu::BFloat16>(g, starts, per_segment);
    check_layout<cpu::Half>(g, starts, per_segment);
}

Geometry uniform(std::int64_t batch, std::int64_t n, std::int64_t d, std::int64_t ell,
                 std::int64_t q) {
    return {batch, n, d, core::count_segments(n, ell, q), ell, q};
}

// Every 16-bit pattern survives widening and narrowing, and ties go to even.
void check_half_types() {
    const Geometry none{};
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const cpu::Half h{static_cast<std::uint16_t>(bits)};
        const cpu::BFloat16 b{static_cast<std::uint16_t>(bits)};
        const auto wide_h = static_cast<float>(h), wide_b = static_cast<float>(b);
        expect(std::isnan(wide_h) ? std::isnan(static_cast<float>(cpu::Half::from(wide_h)))
                                  : cpu::Half::from(wide_h).bits == bits,
               "half round trip", none);
        expect(std::isnan(wide_b) ? std::isnan(static_cast<float>(cpu::BFloat16::from(wide_b)))
                                  : cpu::BFloat16::from(wide_b).bits == bits,
               "bfloat16 round trip", none);
    }
    expect(cpu::Half::from(1.0f + 0x1p-11f).bits == 0x3c00, "half tie to even, down", none);
    expect(cpu::Half::from(1.0f + 3 * 0x1p-11f).bits == 0x3c02, "half tie to even, up", none);
    expect(cpu::Half::from(65519.0f).bits == 0x7bff, "largest half", none);
    expect(cpu::Half::from(65520.0f).bits == 0x7c00, "half overflow", none);
    expect(cpu::Half::from(0x1p-25f).bits == 0, "half underflow tie", none);
    expect(cpu::Half::from(0x1.8p-25f).bits == 1, "smallest half", none);
    expect(cpu::BFloat16::from(1.0f + 0x1p-8f).bits == 0x3f80, "bfloat16 tie to even", none);
}

}  // namespace

int main() {
    check_half_types();
    check_all(uniform(1, 11, 3, 10, 1), nullptr, false);
    check_all(uniform(2, 100, 3, 10, 2), nullptr, false);
    check_all(uniform(1, 101, 1, 4, 7), nullptr, false);
    check_all(uniform(1, 257, 5, 20, 33), nullptr, false);
    check_all(uniform(1, 200, 4, 6, 7), nullptr, false);
    check_all(uniform(1, 50, 129, 6, 3), nullptr, false);
    check_all(uniform(2, 40, 300, 8, 1), nullptr, false);
    check_all(uniform(1, 3001, 3, 50, 2), nullptr, false);
    check_all(uniform(1, 900, 40, 400, 5), nullptr, false);
    check_all(uniform(1, 12, 2, 10, 40), nullptr, false);
    // Rows processed where they lie: whole vectors, an overlapping last one, few taps, gaps between
    // segments, a record that ends within a group.
    for (const std::int64_t d : {16, 17, 24, 40, 64, 71}) {
        check_all(uniform(2, 120, d, 10, 2), nullptr, false);
        check_all(uniform(1, 121, d, 2, 3), nullptr, false);
        check_all(uniform(1, 100, d, 6, 11), nullptr, false);
        check_all(uniform(1, 131, d, 20, 20), nullptr, false);
    }
    // Too large for a cache: written past it.
    check_layout<float>(uniform(1, 90'003, 48, 2, 2), nullptr, false);
    check_layout<double>(uniform(1, 40'000, 56, 2, 1), nullptr, false);
    const std::vector<std::int64_t> starts{0, 0, 1, 5, 5, 9, 30, 31, 59};
    const auto k = static_cast<std::int64_t>(starts.size());
    for (const bool per_segment : {false, true})
        for (const std::int64_t d : {1, 3, 150})
            check_all({2, 80, d, k, 20, 1}, &starts, per_segment);
    std::vector<std::int64_t> many;
    for (std::int64_t n = 0; n < 2400; n += 3) many.insert(many.end(), {n, n});
    check_all({1, 2500, 2, static_cast<std::int64_t>(many.size()), 30, 1}, &many, true);
    if (failures == 0) std::printf("all kernels agree with their definitions\n");
    return failures == 0 ? 0 : 1;
}
