// What operators demand of their tensors, checked once at the entry; kernels trust their input.
//
// The Python layer checks the same things first, with the user's names for them. These checks keep
// a direct call of torch.ops.wpnode.* from reading memory it does not own.
#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "core/segments.h"

namespace wpnode {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

template <typename... Parts>
void check(bool condition, const Parts&... parts) {
    if (condition) return;
    std::ostringstream message;
    message << "wpnode: ";
    ((message << parts), ...);
    throw std::invalid_argument(message.str());
}

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

inline void check_weights(const Tensor& w, ScalarType storage, std::int64_t n_segments) {
    check(w.dim() == 1 || w.dim() == 2, "`w` must have shape [ell + 1] or [n_segments, ell + 1].");
    check(w.size(w.dim() - 1) >= 1, "`w` must not be empty.");
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

// Sizes of a call whose series has n_samples samples; checks q and the number of segments.
inline core::Geometry geometry_of(std::int64_t batch, std::int64_t n_samples, std::int64_t state,
                                  std::int64_t ell, std::int64_t q,
                                  const std::optional<Tensor>& starts) {
    check(q >= 1, "`q` must be at least 1; got ", q, ".");
    check(starts || n_samples > ell, "the series has ", n_samples,
          " samples, fewer than the ell + 1 = ", ell + 1, " a segment needs; use a smaller `ell`.");
    const std::int64_t n_segments =
        starts ? starts->size(0) : core::count_segments(n_samples, ell, q);
    return {batch, n_samples, state, n_segments, ell, q};
}

}  // namespace wpnode
