// Operator schemas, and their CPU implementations over the kernels of csrc/cpu.
//
// corr, corr_t and corr_w are the three partial derivatives of one trilinear form
//
//     T(x, w, y) = sum_{b, k, i, d} y[b, k, d] * w[(k,) i] * x[b, s_k + i, d],
//
// so differentiating any of them gives the other two. Autograd, fake kernels and autocast live in
// Python (wpnode_ext/ops/functions.py), where the stable ABI allows them.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <tuple>

#include "checks.h"
#include "core/weights.h"
#include "cpu/ragged.h"
#include "cpu/uniform.h"
#include "cpu/weight_gradient.h"

namespace wpnode {
namespace {

using core::Geometry;
using cpu::AccumulatorOf;

void parallel_for(std::int64_t n, std::int64_t grain, const cpu::RangeBody& body) {
    torch::stable::parallel_for(0, n, grain, body);
}

const std::int64_t* data_of(const std::optional<Tensor>& starts) {
    return starts ? static_cast<const std::int64_t*>(starts->const_data_ptr()) : nullptr;
}

void check_start_values(const std::optional<Tensor>& starts, const Geometry& g) {
    core::check_start_values(data_of(starts), g);
}

template <typename T>
cpu::RaggedWeights<T> ragged_weights(const Tensor& w, const std::int64_t* starts) {
    return {starts, static_cast<const T*>(w.const_data_ptr()), w.dim() == 2 ? w.size(1) : 0};
}

// Per-segment weights on a uniform grid run through the ragged kernels, which need starts.
std::optional<Tensor> explicit_starts(const Tensor& w, const std::optional<Tensor>& starts,
                                      const Geometry& g) {
    if (starts || w.dim() == 1) return starts;
    Tensor uniform = torch::stable::new_empty(w, {g.n_segments}, ScalarType::Long);
    auto* s = static_cast<std::int64_t*>(uniform.mutable_data_ptr());
    for (std::int64_t k = 0; k < g.n_segments; ++k) s[k] = k * g.q;
    return uniform;
}

// Calls body with a default value of the storage type; body uses its type only.
template <typename Body>
void with_storage(ScalarType type, const Body& body) {
    switch (type) {
        case ScalarType::Double:
            return body(double{});
        case ScalarType::Float:
            return body(float{});
        case ScalarType::BFloat16:
            return body(cpu::BFloat16{});
        default:
            return body(cpu::Half{});
    }
}

Tensor corr(const Tensor& x, const Tensor& w, const std::optional<Tensor>& starts, std::int64_t q) {
    const Geometry g = check_corr(x, w, starts, q);
    check_start_values(starts, g);
    Tensor y = torch::stable::new_empty(x, {g.batch, g.n_segments, g.state});
    if (y.numel() == 0) return y;
    const auto ragged = explicit_starts(w, starts, g);
    with_storage(x.scalar_type(), [&]<typename S>(S) {
        using T = AccumulatorOf<S>;
        const auto* samples = static_cast<const S*>(x.const_data_ptr());
        auto* segments = static_cast<S*>(y.mutable_data_ptr());
        if (ragged) {
            cpu::corr_ragged<S>(g, samples, ragged_weights<T>(w, data_of(ragged)), segments,
                                parallel_for);
        } else {
            cpu::corr_uniform<S>(g, samples, static_cast<const T*>(w.const_data_ptr()), segments,
                                 parallel_for);
        }
    });
    return y;
}

Tensor corr_t(const Tensor& y, const Tensor& w, const std::optional<Tensor>& starts, std::int64_t q,
              std::int64_t n_samples) {
    const Geometry g = check_corr_t(y, w, starts, q, n_samples);
    check_start_values(starts, g);
    Tensor x = torch::stable::new_empty(y, {g.batch, g.n_samples, g.state});
    if (x.numel() == 0) return x;
    const auto ragged = explicit_starts(w, starts, g);
    with_storage(y.scalar_type(), [&]<typename S>(S) {
        using T = AccumulatorOf<S>;
        const auto* segments = static_cast<const S*>(y.const_data_ptr());
        auto* samples = static_cast<S*>(x.mutable_data_ptr());
        if (ragged) {
            cpu::corr_t_ragged<S>(g, segments, ragged_weights<T>(w, data_of(ragged)), samples,
                                  parallel_for);
        } else {
            cpu::corr_t_uniform<S>(g, segments, static_cast<const T*>(w.const_data_ptr()), samples,
                                   parallel_for);
        }
    });
    return x;
}

Tensor corr_w(const Tensor& x, const Tensor& y, const std::optional<Tensor>& starts, std::int64_t q,
              std::int64_t ell, bool per_segment) {
    const Geometry g = check_corr_w(x, y, starts, q, ell, per_segment);
    check_start_values(starts, g);
    const ScalarType type = accumulator_type(x.scalar_type());
    const Tensor samples = torch::stable::to(x, type);
    const Tensor segments = torch::stable::to(y, type);
    Tensor gw = per_segment ? torch::stable::new_empty(samples, {g.n_segments, ell + 1})
                            : torch::stable::new_empty(samples, {ell + 1});
    if (x.numel() == 0 || y.numel() == 0) {  // every sum is empty; gw may still have elements
        torch::stable::zero_(gw);
        return gw;
    }
    with_storage(type, [&]<typename S>(S) {
        if constexpr (std::is_floating_point_v<S>) {
            cpu::corr_w<S>(g, static_cast<const S*>(samples.const_data_ptr()),
                           static_cast<const S*>(segments.const_data_ptr()), data_of(starts),
                           per_segment, static_cast<S*>(gw.mutable_data_ptr()), parallel_for);
        }
    });
    return gw;
}

// Returns the loss as a scalar tensor, and writes the gradient unless `gradient` is null.
Tensor weak_loss_into(const Tensor& f, const Tensor& lhs, const Tensor& w,
                      const std::optional<Tensor>& starts, std::int64_t q, double scale,
                      Tensor* gradient) {
    const Geometry g = check_weak_loss(f, lhs, w, starts, q);
    check_start_values(starts, g);
    Tensor loss = torch::stable::new_empty(lhs, {});
    if (lhs.numel() == 0) {
        torch::stable::zero_(loss);
        if (gradient) torch::stable::zero_(*gradient);
        return loss;
    }
    const auto ragged = explicit_starts(w, starts, g);
    with_storage(f.scalar_type(), [&]<typename S>(S) {
        using T = AccumulatorOf<S>;
        const auto* values = static_cast<const S*>(f.const_data_ptr());
        const auto* left = static_cast<const T*>(lhs.const_data_ptr());
        auto* slope = gradient ? static_cast<S*>(gradient->mutable_data_ptr()) : nullptr;
        double sum = 0.0;
        if (ragged) {
            sum = cpu::weak_loss_ragged<S>(g, values, left, ragged_weights<T>(w, data_of(ragged)),
                                           scale, slope, parallel_for);
        } else {
            sum = cpu::weak_loss_uniform<S>(g, values, left,
                                            static_cast<const T*>(w.const_data_ptr()), scale, slope,
                                            parallel_for);
        }
        *static_cast<T*>(loss.mutable_data_ptr()) = static_cast<T>(sum);
    });
    return loss;
}

Tensor weak_loss(const Tensor& f, const Tensor& lhs, const Tensor& w,
                 const std::optional<Tensor>& starts, std::int64_t q, double scale) {
    return weak_loss_into(f, lhs, w, starts, q, scale, nullptr);
}

std::tuple<Tensor, Tensor> weak_loss_grad(const Tensor& f, const Tensor& lhs, const Tensor& w,
                                          const std::optional<Tensor>& starts, std::int64_t q,
                                          double scale) {
    Tensor gradient = torch::stable::empty_like(f);
    Tensor loss = weak_loss_into(f, lhs, w, starts, q, scale, &gradient);
    return {loss, gradient};
}

// Rows of weights from times: (w_lhs, w_rhs), float64 [n_segments, ell + 1].
std::tuple<Tensor, Tensor> segment_rows(const Tensor& t, const std::optional<Tensor>& starts,
                                        std::int64_t q, std::int64_t p, std::int64_t ell,
                                        std::int64_t d) {
    core::check_parameters(p, ell, d);
    const Geometry g = check_times(t, starts, q, ell);
    check_start_values(starts, g);
    Tensor w_lhs = torch::stable::new_empty(t, {g.n_segments, ell + 1});
    Tensor w_rhs = torch::stable::new_empty(t, {g.n_segments, ell + 1});
    const auto first = explicit_starts(w_lhs, starts, g);
    const auto* times = static_cast<const double*>(t.const_data_ptr());
    auto* left = static_cast<double*>(w_lhs.mutable_data_ptr());
    auto* right = static_cast<double*>(w_rhs.mutable_data_ptr());
    constexpr std::int64_t kRowsWorthAThread = 64;
    parallel_for(g.n_segments, kRowsWorthAThread, [&](std::int64_t begin, std::int64_t end) {
        core::irregular_weights(static_cast<int>(p), ell, static_cast<int>(d), core::Rule::kLinear,
                                times, data_of(first) + begin, end - begin,
                                left + begin * (ell + 1), right + begin * (ell + 1));
    });
    return {w_lhs, w_rhs};
}

Tensor rhs_rows(const Tensor& f, const Tensor& t, const std::optional<Tensor>& starts,
                std::int64_t q, std::int64_t p, std::int64_t ell) {
    const Tensor rows = std::get<1>(segment_rows(t, starts, q, p, ell, 1));
    return torch::stable::to(rows, accumulator_type(f.scalar_type()));
}

Tensor weak_loss_at(const Tensor& f, const Tensor& lhs, const Tensor& t,
                    const std::optional<Tensor>& starts, std::int64_t q, std::int64_t p,
                    std::int64_t ell, double scale) {
    check_weak_loss_at(f, lhs, t, starts, q, ell);
    return weak_loss(f, lhs, rhs_rows(f, t, starts, q, p, ell), starts, q, scale);
}

std::tuple<Tensor, Tensor> weak_loss_grad_at(const Tensor& f, const Tensor& lhs, const Tensor& t,
                                             const std::optional<Tensor>& starts, std::int64_t q,
                                             std::int64_t p, std::int64_t ell, double scale) {
    check_weak_loss_at(f, lhs, t, starts, q, ell);
    return weak_loss_grad(f, lhs, rhs_rows(f, t, starts, q, p, ell), starts, q, scale);
}

}  // namespace

STABLE_TORCH_LIBRARY(wpnode, m) {
    m.def("corr(Tensor x, Tensor w, Tensor? starts, SymInt q) -> Tensor");
    m.def("corr_t(Tensor y, Tensor w, Tensor? starts, SymInt q, SymInt n_samples) -> Tensor");
    m.def(
        "corr_w(Tensor x, Tensor y, Tensor? starts, SymInt q, SymInt ell, bool per_segment)"
        " -> Tensor");
    m.def(
        "weak_loss(Tensor f, Tensor lhs, Tensor w, Tensor? starts, SymInt q, float scale)"
        " -> Tensor");
    m.def(
        "weak_loss_grad(Tensor f, Tensor lhs, Tensor w, Tensor? starts, SymInt q, float scale)"
        " -> (Tensor, Tensor)");
    // On CUDA only: the host would have to wait for the device to read the factor (cuda/scale.cu).
    m.def("scale_(Tensor(a!) values, Tensor factor) -> ()");
    // The same with weights generated from the times of each segment by the linear product rule.
    m.def(
        "segment_rows(Tensor t, Tensor? starts, SymInt q, SymInt p, SymInt ell, SymInt d)"
        " -> (Tensor, Tensor)");
    m.def(
        "weak_loss_at(Tensor f, Tensor lhs, Tensor t, Tensor? starts, SymInt q, SymInt p,"
        " SymInt ell, float scale) -> Tensor");
    m.def(
        "weak_loss_grad_at(Tensor f, Tensor lhs, Tensor t, Tensor? starts, SymInt q, SymInt p,"
        " SymInt ell, float scale) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(wpnode, CPU, m) {
    m.impl("corr", TORCH_BOX(&corr));
    m.impl("corr_t", TORCH_BOX(&corr_t));
    m.impl("corr_w", TORCH_BOX(&corr_w));
    m.impl("weak_loss", TORCH_BOX(&weak_loss));
    m.impl("weak_loss_grad", TORCH_BOX(&weak_loss_grad));
    m.impl("segment_rows", TORCH_BOX(&segment_rows));
    m.impl("weak_loss_at", TORCH_BOX(&weak_loss_at));
    m.impl("weak_loss_grad_at", TORCH_BOX(&weak_loss_grad_at));
}

}  // namespace wpnode
