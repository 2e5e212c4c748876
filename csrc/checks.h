// Checks of the operators' arguments. They run once, at the entry; kernels trust their input.
//
// The Python layer checks the same things first, with the user's names for them. These checks keep
// a direct call of torch.ops.wpnode.* from reading memory it does not own.
#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "core/checked_geometry.h"

namespace wpnode {

using core::check;
using core::check_rows;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;

inline bool is_supported(ScalarType type) {
    return type == ScalarType::Double || type == ScalarType::Float ||
           type == ScalarType::BFloat16 || type == ScalarType::Half;
}

// Type of weights, of left-hand sides and of sums for values stored as `type`.
inline ScalarType accumulator_type(ScalarType type) {
    return type == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

inline void check_series(const Tensor& x, const char* name) {  // [B, rows, D]
    check(x.dim() == 3, "`", name, "` must have shape [batch, rows, state]; got ", x.dim(),
          " axes.");
    check(is_supported(x.scalar_type()), "`", name,
          "` must be float64, float32, bfloat16 or float16.");
    check(x.is_contiguous(), "`", name, "` must be contiguous.");
}

inline std::int64_t ell_of(const Tensor& w) {
    check(w.dim() == 1 || w.dim() == 2, "`w` must have shape [ell + 1] or [n_segments, ell + 1].");
    check(w.size(w.dim() - 1) >= 1, "`w` must not be empty.");
    return w.size(w.dim() - 1) - 1;
}

inline void check_weights(const Tensor& w, ScalarType storage, std::int64_t n_segments) {
    check(w.dim() == 1 || w.size(0) == n_segments, "`w` has ", w.size(0), " rows for ", n_segments,
          " segments.");
    check(w.scalar_type() == accumulator_type(storage),
          "`w` must be float64 for float64 series and float32 for all others.");
    check(w.is_contiguous(), "`w` must be contiguous.");
}

inline void check_starts(const std::optional<Tensor>& starts) {
    if (!starts) return;
    check(starts->dim() == 1, "`starts` must have one axis; got ", starts->dim(), ".");
    check(starts->scalar_type() == ScalarType::Long, "`starts` must be int64.");
    check(starts->is_contiguous(), "`starts` must be contiguous.");
}

inline core::Geometry geometry_of(std::int64_t batch, std::int64_t n_samples, std::int64_t state,
                                  std::int64_t ell, std::int64_t q,
                                  const std::optional<Tensor>& starts) {
    const auto n_starts = starts ? std::optional(starts->size(0)) : std::nullopt;
    return core::checked_geometry(batch, n_samples, state, ell, q, n_starts);
}

inline void check_segments(const Tensor& y, const char* name, const core::Geometry& g) {
    check_series(y, name);
    check(y.size(0) == g.batch && y.size(1) == g.n_segments && y.size(2) == g.state, "`", name,
          "` must have shape [", g.batch, ", ", g.n_segments, ", ", g.state, "]; got [", y.size(0),
          ", ", y.size(1), ", ", y.size(2), "].");
}

inline core::Geometry check_corr(const Tensor& x, const Tensor& w,
                                 const std::optional<Tensor>& starts, std::int64_t q) {
    check_series(x, "x");
    check_starts(starts);
    const auto g = geometry_of(x.size(0), x.size(1), x.size(2), ell_of(w), q, starts);
    check_weights(w, x.scalar_type(), g.n_segments);
    return g;
}

inline core::Geometry check_corr_t(const Tensor& y, const Tensor& w,
                                   const std::optional<Tensor>& starts, std::int64_t q,
                                   std::int64_t n_samples) {
    check_series(y, "y");
    check_starts(starts);
    const auto g = geometry_of(y.size(0), n_samples, y.size(2), ell_of(w), q, starts);
    check_segments(y, "y", g);
    check_weights(w, y.scalar_type(), g.n_segments);
    return g;
}

inline core::Geometry check_corr_w(const Tensor& x, const Tensor& y,
                                   const std::optional<Tensor>& starts, std::int64_t q,
                                   std::int64_t ell, bool per_segment) {
    check_series(x, "x");
    check_starts(starts);
    const auto g = geometry_of(x.size(0), x.size(1), x.size(2), ell, q, starts);
    if (per_segment) check_rows(g);
    check_segments(y, "y", g);
    check(y.scalar_type() == x.scalar_type(), "`y` must have the dtype of `x`.");
    return g;
}

inline core::Geometry check_weak_loss(const Tensor& f, const Tensor& lhs, const Tensor& w,
                                      const std::optional<Tensor>& starts, std::int64_t q) {
    check_series(f, "f");
    check_starts(starts);
    const auto g = geometry_of(f.size(0), f.size(1), f.size(2), ell_of(w), q, starts);
    check_segments(lhs, "lhs", g);
    check_weights(w, f.scalar_type(), g.n_segments);
    check(lhs.scalar_type() == w.scalar_type(), "`lhs` must have the dtype of `w`.");
    return g;
}

// Checks times from which the linear product rule makes one row of weights per segment.
inline core::Geometry check_times(const Tensor& t, const std::optional<Tensor>& starts,
                                  std::int64_t q, std::int64_t ell) {
    check(t.dim() == 1 && t.scalar_type() == ScalarType::Double && t.is_contiguous(),
          "`t` must be a contiguous float64 vector.");
    check_starts(starts);
    const core::Geometry g = geometry_of(1, t.size(0), 1, ell, q, starts);
    check_rows(g);
    return g;
}

inline core::Geometry check_weak_loss_at(const Tensor& f, const Tensor& lhs, const Tensor& t,
                                         const std::optional<Tensor>& starts, std::int64_t q,
                                         std::int64_t ell) {
    check_series(f, "f");
    check_times(t, starts, q, ell);
    check(f.size(1) == t.size(0), "`t` has ", t.size(0), " times for ", f.size(1), " samples.");
    const auto g = geometry_of(f.size(0), f.size(1), f.size(2), ell, q, starts);
    check_segments(lhs, "lhs", g);
    check(lhs.scalar_type() == accumulator_type(f.scalar_type()),
          "`lhs` must be float64 for float64 series and float32 for all others.");
    return g;
}

}  // namespace wpnode
