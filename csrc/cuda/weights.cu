// Weights of the linear product rule, generated on the device in float64.
//
// One thread per weight: it integrates over the two cells next to its node, so no thread needs
// another's result. Per weight 16 bytes are written and five times read, which neighbouring threads
// share; the kernel is bound by the (p + 1) evaluations of phi in each cell.

#include "core/sizes.h"
#include "cuda/dispatch.h"

namespace wpnode::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    weights_kernel(const __grid_constant__ Shape shape, const __grid_constant__ HalfRule rule,
                   const WeightKind lhs_kind, const double* __restrict__ times, const double dt,
                   const std::int64_t count, double* __restrict__ w_lhs,
                   double* __restrict__ w_rhs) {
    const std::int64_t nodes = shape.ell + 1;
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
    for (std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; e < count;
         e += stride) {
        const std::int64_t k = e / nodes;
        const int i = static_cast<int>(e - k * nodes);
        double lhs = kNan<double>;
        double rhs = kNan<double>;
        if (times == nullptr) {
            const UniformTimes t{dt};
            lhs = product_weight<double>(rule, lhs_kind, t, shape.ell, i);
            rhs = product_weight<double>(rule, WeightKind::kRhs, t, shape.ell, i);
        } else if (const int start = shape.start(static_cast<int>(k)); shape.inside(start)) {
            const GlobalTimes t{times + start};
            lhs = product_weight<double>(rule, lhs_kind, t, shape.ell, i);
            rhs = product_weight<double>(rule, WeightKind::kRhs, t, shape.ell, i);
        }
        store_global(w_lhs + e, lhs);
        store_global(w_rhs + e, rhs);
    }
}

}  // namespace

int launch_weights(const Problem& problem, const double* times, double dt, int p, int order,
                   double* w_lhs, double* w_rhs, void* stream) {
    if (problem.ell < 1 || problem.ell > kMaxCount) return cudaErrorInvalidValue;
    Problem one_row = problem;
    if (times == nullptr) {
        one_row.samples = problem.ell + 1;
        one_row.segments = 1;
        one_row.starts = nullptr;
    }
    if (const int error = check(one_row, nullptr)) return error;
    if (p < order || p > kMaxPower || order < 1 || order > 2) return cudaErrorInvalidValue;
    if (!core::is_countable({one_row.segments, problem.ell + 1})) return cudaErrorInvalidValue;
    const std::int64_t count = one_row.segments * (problem.ell + 1);
    if (count == 0) return cudaSuccess;
    const auto kind = order == 1 ? WeightKind::kLhsFirstOrder : WeightKind::kLhsSecondOrder;
    WPNODE_LAUNCH(weights_kernel, grid_for(problem, (count + kThreads - 1) / kThreads),
                  dim3(kThreads), 0, stream, shape_of(one_row), make_rule(p), kind, times, dt,
                  count, w_lhs, w_rhs);
    return static_cast<int>(cudaGetLastError());
}

}  // namespace wpnode::cuda
