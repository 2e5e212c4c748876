// CUDA implementations of the operators declared in ops.cpp, over the launchers of csrc/cuda.
//
// Nothing here or in the launchers waits for the device, so the host cannot check starts: kernels
// give NaN for segments that leave the series. Work goes to torch's current stream; scratch comes
// from torch's allocator, which knows streams and graphs.
#ifdef WPNODE_WITH_CUDA

#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <tuple>

#include "checks.h"
#include "core/weights.h"
#include "cuda/launchers.h"

namespace wpnode {
namespace {

using core::Geometry;

cuda::DType dtype_of(const Tensor& x) {
    switch (x.scalar_type()) {
        case ScalarType::Double:
            return cuda::DType::kFloat64;
        case ScalarType::Float:
            return cuda::DType::kFloat32;
        case ScalarType::BFloat16:
            return cuda::DType::kBFloat16;
        default:
            return cuda::DType::kFloat16;
    }
}

// torch's current stream, from a function of its CUDA library. This module is not linked against
// that library, since it must load under a CPU-only torch as well; but where there is a CUDA
// tensor, torch has loaded it, and it can be asked by name.
using GetCurrentStream = AOTITorchError (*)(std::int32_t device_index, void** stream);

GetCurrentStream find_get_current_stream() {
    void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return nullptr;
    return reinterpret_cast<GetCurrentStream>(dlsym(library, "aoti_torch_get_current_cuda_stream"));
}

void* current_stream(const Tensor& x) {
    static const GetCurrentStream get_current_stream = find_get_current_stream();
    check(get_current_stream != nullptr, "torch's CUDA library is not loaded.");
    void* stream = nullptr;
    check(get_current_stream(x.get_device_index(), &stream) == AOTI_TORCH_SUCCESS,
          "torch did not return its current stream.");
    return stream;
}

// Keeps the device of a tensor current for one call, and knows its stream.
class Launch {
  public:
    explicit Launch(const Tensor& x) : guard_(x.get_device_index()), stream_(current_stream(x)) {}

    void* stream() const { return stream_; }

    static void check_status(int status) {
        check(status == 0, "a CUDA launch failed: ", status == 0 ? "" : cuda::error_text(status));
    }

  private:
    torch::stable::accelerator::DeviceGuard guard_;
    void* stream_;
};

void check_same_device(const Tensor& x, const Tensor& other, const char* name) {
    check(other.is_cuda() && other.get_device_index() == x.get_device_index(), "`", name,
          "` must be on the device of the series.");
}

cuda::Problem problem_of(const Geometry& g, const Tensor& x, const std::optional<Tensor>& starts) {
    for (const std::int64_t count : {g.n_samples, g.state, g.n_segments, g.ell}) {
        check(count <= cuda::kMaxCount, "the CUDA operators take at most ", cuda::kMaxCount,
              " samples, segments, channels and nodes; got ", count, ". Split the series.");
    }
    cuda::Problem problem;
    problem.dtype = dtype_of(x);
    problem.batch = g.batch;
    problem.samples = g.n_samples;
    problem.state = g.state;
    problem.segments = g.n_segments;
    problem.ell = g.ell;
    problem.q = g.q;
    if (starts) {
        check_same_device(x, *starts, "starts");
        problem.starts = static_cast<const std::int64_t*>(starts->const_data_ptr());
    }
    return problem;
}

cuda::Weights weights_of(const Tensor& w, const Tensor& x) {
    check_same_device(x, w, "w");
    cuda::Weights weights;
    weights.values = w.const_data_ptr();
    weights.per_segment = w.dim() == 2;
    return weights;
}

Tensor workspace(const Tensor& x, std::size_t bytes) {
    return torch::stable::new_empty(x, {static_cast<std::int64_t>(bytes)}, ScalarType::Byte);
}

Tensor corr(const Tensor& x, const Tensor& w, const std::optional<Tensor>& starts, std::int64_t q) {
    const Geometry g = check_corr(x, w, starts, q);
    const Launch launch(x);
    Tensor y = torch::stable::new_empty(x, {g.batch, g.n_segments, g.state});
    launch.check_status(cuda::launch_corr(problem_of(g, x, starts), weights_of(w, x),
                                          x.const_data_ptr(), y.mutable_data_ptr(),
                                          launch.stream()));
    return y;
}

Tensor corr_t(const Tensor& y, const Tensor& w, const std::optional<Tensor>& starts, std::int64_t q,
              std::int64_t n_samples) {
    const Geometry g = check_corr_t(y, w, starts, q, n_samples);
    const Launch launch(y);
    Tensor x = torch::stable::new_empty(y, {g.batch, g.n_samples, g.state});
    launch.check_status(cuda::launch_corr_t(problem_of(g, y, starts), weights_of(w, y),
                                            y.const_data_ptr(), x.mutable_data_ptr(),
                                            launch.stream()));
    return x;
}

Tensor corr_w(const Tensor& x, const Tensor& y, const std::optional<Tensor>& starts, std::int64_t q,
              std::int64_t ell, bool per_segment) {
    const Geometry g = check_corr_w(x, y, starts, q, ell, per_segment);
    check_same_device(x, y, "y");
    const Launch launch(x);
    const ScalarType type = accumulator_type(x.scalar_type());
    Tensor gw = per_segment ? torch::stable::new_empty(x, {g.n_segments, ell + 1}, type)
                            : torch::stable::new_empty(x, {ell + 1}, type);
    const cuda::Problem problem = problem_of(g, x, starts);
    Tensor scratch = workspace(x, cuda::corr_w_workspace(problem, per_segment));
    launch.check_status(cuda::launch_corr_w(problem, per_segment, y.const_data_ptr(),
                                            x.const_data_ptr(), gw.mutable_data_ptr(),
                                            scratch.mutable_data_ptr(), launch.stream()));
    return gw;
}

// Returns the loss, and writes its gradient unless `gradient` is null. Weights are stored or
// generated.
Tensor weak_loss_into(const Geometry& g, const Tensor& f, const Tensor& lhs,
                      const cuda::Weights& weights, const std::optional<Tensor>& starts,
                      double scale, Tensor* gradient) {
    check_same_device(f, lhs, "lhs");
    const Launch launch(f);
    const cuda::Problem problem = problem_of(g, f, starts);
    Tensor loss = torch::stable::new_empty(lhs, {});
    const std::size_t bytes = gradient ? cuda::weak_loss_grad_workspace(problem, weights)
                                       : cuda::weak_loss_workspace(problem, weights);
    Tensor scratch = workspace(f, bytes);
    if (gradient) {
        launch.check_status(cuda::launch_weak_loss_grad(
            problem, weights, lhs.const_data_ptr(), f.const_data_ptr(), scale,
            loss.mutable_data_ptr(), gradient->mutable_data_ptr(), scratch.mutable_data_ptr(),
            launch.stream()));
    } else {
        launch.check_status(cuda::launch_weak_loss(
            problem, weights, lhs.const_data_ptr(), f.const_data_ptr(), scale,
            loss.mutable_data_ptr(), scratch.mutable_data_ptr(), launch.stream()));
    }
    return loss;
}

Tensor weak_loss(const Tensor& f, const Tensor& lhs, const Tensor& w,
                 const std::optional<Tensor>& starts, std::int64_t q, double scale) {
    const Geometry g = check_weak_loss(f, lhs, w, starts, q);
    return weak_loss_into(g, f, lhs, weights_of(w, f), starts, scale, nullptr);
}

std::tuple<Tensor, Tensor> weak_loss_grad(const Tensor& f, const Tensor& lhs, const Tensor& w,
                                          const std::optional<Tensor>& starts, std::int64_t q,
                                          double scale) {
    const Geometry g = check_weak_loss(f, lhs, w, starts, q);
    Tensor gradient = torch::stable::empty_like(f);
    Tensor loss = weak_loss_into(g, f, lhs, weights_of(w, f), starts, scale, &gradient);
    return {loss, gradient};
}

void scale(Tensor values, const Tensor& factor) {
    check(is_supported(values.scalar_type()) && values.is_contiguous(),
          "`values` must be contiguous and float64, float32, bfloat16 or float16.");
    check(factor.numel() == 1 && factor.scalar_type() == accumulator_type(values.scalar_type()),
          "`factor` must be one number, float64 for float64 values and float32 for all others.");
    check_same_device(values, factor, "factor");
    const Launch launch(values);
    launch.check_status(cuda::launch_scale(dtype_of(values), values.numel(),
                                           factor.const_data_ptr(), values.mutable_data_ptr(),
                                           launch.stream()));
}

cuda::Weights weights_at(const Tensor& t, const Tensor& f, std::int64_t p, std::int64_t ell) {
    core::check_parameters(p, ell, 1);
    check(ell <= cuda::kMaxGeneratedEll, "`ell` must be at most ", cuda::kMaxGeneratedEll,
          " for weights generated on a CUDA device; got ", ell, ". Store the weights instead.");
    check_same_device(f, t, "t");
    cuda::Weights weights;
    weights.times = static_cast<const double*>(t.const_data_ptr());
    weights.p = static_cast<int>(p);
    return weights;
}

Tensor weak_loss_at(const Tensor& f, const Tensor& lhs, const Tensor& t,
                    const std::optional<Tensor>& starts, std::int64_t q, std::int64_t p,
                    std::int64_t ell, double scale) {
    const Geometry g = check_weak_loss_at(f, lhs, t, starts, q, ell);
    return weak_loss_into(g, f, lhs, weights_at(t, f, p, ell), starts, scale, nullptr);
}

std::tuple<Tensor, Tensor> weak_loss_grad_at(const Tensor& f, const Tensor& lhs, const Tensor& t,
                                             const std::optional<Tensor>& starts, std::int64_t q,
                                             std::int64_t p, std::int64_t ell, double scale) {
    const Geometry g = check_weak_loss_at(f, lhs, t, starts, q, ell);
    Tensor gradient = torch::stable::empty_like(f);
    Tensor loss = weak_loss_into(g, f, lhs, weights_at(t, f, p, ell), starts, scale, &gradient);
    return {loss, gradient};
}

std::tuple<Tensor, Tensor> segment_rows(const Tensor& t, const std::optional<Tensor>& starts,
                                        std::int64_t q, std::int64_t p, std::int64_t ell,
                                        std::int64_t d) {
    core::check_parameters(p, ell, d);
    const Geometry g = check_times(t, starts, q, ell);
    const Launch launch(t);
    Tensor w_lhs = torch::stable::new_empty(t, {g.n_segments, ell + 1});
    Tensor w_rhs = torch::stable::new_empty(t, {g.n_segments, ell + 1});
    launch.check_status(cuda::launch_weights(
        problem_of(g, t, starts), static_cast<const double*>(t.const_data_ptr()), 0.0,
        static_cast<int>(p), static_cast<int>(d), static_cast<double*>(w_lhs.mutable_data_ptr()),
        static_cast<double*>(w_rhs.mutable_data_ptr()), launch.stream()));
    return {w_lhs, w_rhs};
}

}  // namespace

// The names of ops.cpp for the functions of this file, and `scale_`, which only CUDA has.
STABLE_TORCH_LIBRARY_IMPL(wpnode, CUDA, m) {
    m.impl("corr", TORCH_BOX(&corr));
    m.impl("corr_t", TORCH_BOX(&corr_t));
    m.impl("corr_w", TORCH_BOX(&corr_w));
    m.impl("weak_loss", TORCH_BOX(&weak_loss));
    m.impl("weak_loss_grad", TORCH_BOX(&weak_loss_grad));
    m.impl("scale_", TORCH_BOX(&scale));
    m.impl("segment_rows", TORCH_BOX(&segment_rows));
    m.impl("weak_loss_at", TORCH_BOX(&weak_loss_at));
    m.impl("weak_loss_grad_at", TORCH_BOX(&weak_loss_grad_at));
}

}  // namespace wpnode

#endif  // WPNODE_WITH_CUDA
