// Every launcher on a table of problems, for runs under sanitizers.
//
// usage: driver [few] < problems
// Problems come one a line: batch samples state ell q rows starts, where `rows` tells whether every
// segment has weights of its own and `starts` is "uniform" or how many there are, then these. To
// them are added problems made for the kernels: unaligned series, generated weights, small grids,
// starts out of order. `few`: float32 in a random order alone and fewer of the added ones, for the
// thread sanitizer, which is slow and whose view of the barriers depends neither on the type nor on
// the order. Buffers have exactly the size the contract asks for. Results are compared with plain
// loops; the exit status tells.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "core/accumulator.h"
#include "cuda/divide.cuh"
#include "cuda/launchers.h"
#include "simulator/runtime.h"

namespace {

using namespace wpnode::cuda;

int failures = 0;

using Starts = std::vector<std::int64_t>;

struct Case {
    std::int64_t batch, samples, state, ell, q;
    bool rows;                          // weights of their own for every segment
    bool generated;                     // weights from times
    std::optional<Starts> starts = {};  // instead of q
    int shift = 0;                      // elements by which series miss alignment
    std::int64_t max_blocks = 0;        // 0: no limit of the grid
    bool ordered = true;                // else only memory matters, not results
};

double load(float x) { return x; }
double load(double x) { return x; }
double load(__half x) { return __half2float(x); }
double load(__nv_bfloat16 x) { return __bfloat162float(x); }
void put(float& x, double v) { x = static_cast<float>(v); }
void put(double& x, double v) { x = v; }
void put(__half& x, double v) { x = __float2half_rn(static_cast<float>(v)); }
void put(__nv_bfloat16& x, double v) { x = __float2bfloat16_rn(static_cast<float>(v)); }

template <typename T>
constexpr DType kType = DType::kFloat32;
template <>
constexpr DType kType<double> = DType::kFloat64;
template <>
constexpr DType kType<__half> = DType::kFloat16;
template <>
constexpr DType kType<__nv_bfloat16> = DType::kBFloat16;

// `size` elements, the last of them at the end of the allocation.
template <typename T>
class Buffer {
  public:
    Buffer(std::int64_t size, int shift, double fill)
        : shift_(static_cast<std::size_t>(shift)),
          size_(static_cast<std::size_t>(size)),
          data_(new (std::align_val_t{64}) T[shift_ + size_]) {
        for (std::size_t i = 0; i < size_; ++i) put((*this)[i], fill);
    }
    ~Buffer() { ::operator delete[](data_, std::align_val_t{64}); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    Buffer& randomize(std::mt19937& random) {
        std::uniform_real_distribution<double> draw(-1.0, 1.0);
        for (std::size_t i = 0; i < size_; ++i) put((*this)[i], draw(random));
        return *this;
    }
    T* get() { return data_ + shift_; }
    T& operator[](std::size_t i) { return data_[shift_ + i]; }
    double at(std::int64_t i) { return load((*this)[static_cast<std::size_t>(i)]); }
    std::size_t size() const { return size_; }

  private:
    std::size_t shift_, size_;
    T* data_;
};

template <typename T>
void compare(const Case& c, const char* name, Buffer<T>& got, const std::vector<double>& want) {
    if (!c.ordered) return;
    const double unit = sizeof(T) == 8 ? 1e-12 : sizeof(T) == 4 ? 1e-4 : 2e-2;
    double scale = 1.0;
    for (const double value : want) scale = std::max(scale, std::fabs(value));
    for (std::size_t i = 0; i < want.size(); ++i) {
        if (std::fabs(load(got[i]) - want[i]) <= unit * scale) continue;
        std::printf("%s[%zu] is %g, should be %g\n", name, i, load(got[i]), want[i]);
        ++failures;
        return;
    }
}

template <typename T>
void run(const Case& c) {
    using A = wpnode::core::AccumulatorOf<T>;
    std::mt19937 random(1);
    Problem problem;
    problem.dtype = kType<T>;
    problem.batch = c.batch;
    problem.samples = c.samples;
    problem.state = c.state;
    problem.ell = c.ell;
    problem.q = c.q;
    // No starts at all still have an address.
    Starts listed = c.starts.value_or(Starts{});
    problem.segments =
        c.starts ? static_cast<std::int64_t>(listed.size()) : (c.samples - 1 - c.ell) / c.q + 1;
    listed.reserve(1);
    problem.starts = c.starts ? listed.data() : nullptr;
    if (c.max_blocks) problem.max_blocks = c.max_blocks;
    const std::int64_t K = problem.segments, N = c.samples, D = c.state, nodes = c.ell + 1;
    const auto start = [&](std::int64_t k) {
        return c.starts ? listed[static_cast<std::size_t>(k)] : k * c.q;
    };

    Buffer<double> times(N, 0, 0.0);
    for (std::int64_t n = 0; n < N; ++n) {
        times[static_cast<std::size_t>(n)] =
            static_cast<double>(n) + 0.3 * std::sin(static_cast<double>(n));
    }
    // The rows the kernels generate, from the weights kernel.
    const bool rows = c.rows || c.generated;
    Buffer<A> w((rows ? K : 1) * nodes, 0, 0.0);
    w.randomize(random);
    Weights weights;
    weights.per_segment = c.rows;
    weights.values = w.get();
    if (c.generated) {
        Buffer<double> w_lhs(K * nodes, 0, 0.0), w_rhs(K * nodes, 0, 0.0);
        failures +=
            launch_weights(problem, times.get(), 0.0, 5, 1, w_lhs.get(), w_rhs.get(), nullptr) != 0;
        for (std::size_t i = 0; i < w.size(); ++i) put(w[i], w_rhs[i]);
        weights.values = nullptr;
        weights.per_segment = false;
        weights.times = times.get();
        weights.p = 5;
    }
    const auto weight = [&](std::int64_t k, std::int64_t i) {
        return w.at(rows ? k * nodes + i : i);
    };

    Buffer<T> x(c.batch * N * D, c.shift, 0.0), y(c.batch * K * D, c.shift, 0.0);
    Buffer<A> lhs(c.batch * K * D, c.shift, 0.0);
    x.randomize(random);
    y.randomize(random);
    lhs.randomize(random);
    std::vector<double> corr(y.size()), adjoint(x.size()), grad(x.size()), loss(1);
    std::vector<double> gw(static_cast<std::size_t>((rows ? K : 1) * nodes));
    for (std::int64_t b = 0; b < c.batch; ++b) {
        for (std::int64_t k = 0; k < K; ++k) {
            for (std::int64_t d = 0; d < D; ++d) {
                const auto here = static_cast<std::size_t>((b * K + k) * D + d);
                const auto at = [&](std::int64_t i) { return (b * N + start(k) + i) * D + d; };
                for (std::int64_t i = 0; i < nodes; ++i) corr[here] += weight(k, i) * x.at(at(i));
                const double residual = lhs.at(static_cast<std::int64_t>(here)) + corr[here];
                loss[0] += 0.5 * residual * residual;
                for (std::int64_t i = 0; i < nodes; ++i) {
                    const double factor = y.at(static_cast<std::int64_t>(here));
                    adjoint[static_cast<std::size_t>(at(i))] += weight(k, i) * factor;
                    grad[static_cast<std::size_t>(at(i))] += weight(k, i) * residual;
                    gw[static_cast<std::size_t>(rows ? k * nodes + i : i)] += factor * x.at(at(i));
                }
            }
        }
    }

    Buffer<T> out(c.batch * K * D, c.shift, NAN), back(c.batch * N * D, c.shift, NAN);
    Buffer<A> sum(1, 0, NAN), gw_out((rows ? K : 1) * nodes, 0, NAN);
    const auto work = [](std::size_t bytes) {
        return std::make_unique<double[]>(bytes / sizeof(double));
    };
    const auto succeed = [](int status) { failures += status != 0; };
    succeed(launch_corr(problem, weights, x.get(), out.get(), nullptr));
    compare(c, "corr", out, corr);
    succeed(launch_corr_t(problem, weights, y.get(), back.get(), nullptr));
    compare(c, "corr_t", back, adjoint);
    const auto loss_work = work(weak_loss_workspace(problem, weights));
    succeed(launch_weak_loss(problem, weights, lhs.get(), x.get(), 0.5, sum.get(), loss_work.get(),
                             nullptr));
    compare(c, "weak_loss", sum, loss);
    const auto grad_work = work(weak_loss_grad_workspace(problem, weights));
    succeed(launch_weak_loss_grad(problem, weights, lhs.get(), x.get(), 0.5, sum.get(), back.get(),
                                  grad_work.get(), nullptr));
    compare(c, "weak_loss_grad", sum, loss);
    compare(c, "gradient", back, grad);
    const auto gw_work = work(corr_w_workspace(problem, rows));
    succeed(launch_corr_w(problem, rows, y.get(), x.get(), gw_out.get(), gw_work.get(), nullptr));
    compare(c, "corr_w", gw_out, gw);
}

void check_divider() {
    const std::int64_t most = (std::int64_t{1} << 31) - 1;
    std::mt19937_64 random(1);
    for (int round = 0; round < 100000; ++round) {
        const auto bits = [&] {
            return static_cast<std::int64_t>(random() % most >> random() % 31);
        };
        const std::int64_t divisor = bits() + 1;
        const std::int64_t multiple = most / divisor * divisor;
        for (const std::int64_t n : {bits(), multiple, multiple - 1, most}) {
            const auto value = static_cast<int>(n);
            const Divider by(divisor);
            if (by.divide(value) == n / divisor && by.remainder(value) == n % divisor) continue;
            std::printf("%d / %ld is %d\n", value, divisor, by.divide(value));
            ++failures;
            return;
        }
    }
}

// The problems of standard input.
std::vector<Case> given_table() {
    std::vector<Case> cases;
    for (std::string line, starts; std::getline(std::cin, line);) {
        std::istringstream fields(line);
        Case c{};
        c.ordered = true;
        fields >> c.batch >> c.samples >> c.state >> c.ell >> c.q >> c.rows >> starts;
        if (starts != "uniform") {
            c.starts.emplace(std::stoul(starts));
            for (std::int64_t& start : *c.starts) fields >> start;
        }
        if (fields.fail()) {
            std::printf("cannot read: %s\n", line.c_str());
            ++failures;
        }
        cases.push_back(c);
    }
    return cases;
}

std::vector<Case> added_table() {
    const Starts clusters = {0, 1, 1, 2, 5, 60, 61, 63, 70};
    const Starts sparse = {3, 30, 71};
    const Starts disorder = {70, 3, 81, 30, 0, 55, 2, 61};
    return {
        // batch, samples, state, ell, q, rows, generated
        {1, 120, 3, 20, 2, false, false},
        {2, 60, 40, 8, 1, true, false},
        {1, 60, 33, 8, 3, false, false, {}, 1},
        {1, 90, 3, 8, 1, false, true, clusters},
        {1, 90, 32, 8, 1, false, false, sparse},
        {1, 40, 64, 4, 9, true, false},
        {1, 40, 64, 4, 2, false, true},
        // One block for all tiles, some of them without segments.
        {1, 200, 3, 2, 1, false, false, Starts{3, 190}, 0, 1},
        {1, 90, 3, 8, 1, true, false, disorder, 0, 0, false},
        // Short rows that move 16 bytes at a time, dense and far apart.
        {2, 70, 16, 8, 2, false, false},
        {1, 90, 16, 8, 1, false, false, sparse},
        // From here on left out for the thread sanitizer.
        {1, 60, 72, 8, 1, true, false},
        {1, 50, 44, 6, 9, false, false},
        {1, 90, 40, 8, 1, false, true, disorder, 0, 0, false},
        {2, 81, 1, 10, 1, true, false, clusters},
        {1, 70, 129, 6, 2, false, true, {}, 1},
        {1, 9, 36, 8, 1, false, false},
        {1, 2150, 2, 2100, 20, false, false},
        {1, 2150, 2, 2100, 20, false, false, Starts{30, 0, 49}, 0, 0, false},
    };
}

}  // namespace

int main(int argc, char** argv) {
    const bool few = argc > 1 && std::string(argv[1]) == "few";
    constexpr std::size_t kFew = 11;
    check_divider();
    std::vector<Case> cases = given_table();
    const std::size_t given = cases.size();
    std::vector<Case> added = added_table();
    if (few) added.resize(kFew);
    cases.insert(cases.end(), added.begin(), added.end());
    const std::vector<unsigned> orders = few ? std::vector{11u} : std::vector{0u, 1u, 11u};
    for (const unsigned order : orders) {
        cuda_sim::set_order(static_cast<cuda_sim::Order>(order < 2 ? order : 2), order);
        for (const Case& c : cases) {
            run<float>(c);
            if (few) continue;
            run<double>(c);
            run<__half>(c);
            run<__nv_bfloat16>(c);
        }
    }
    std::printf("%zu problems given, %zu added, %d type(s), %zu order(s): %d failures\n", given,
                added.size(), few ? 1 : 4, orders.size(), failures);
    return failures != 0;
}
