// Launchers of the CUDA operators. Plain C++: no CUDA or torch header is needed to call them.
//
// Every pointer except the structs themselves is device memory; arrays are contiguous. Launchers
// only enqueue work on `stream` (a cudaStream_t): they neither allocate nor synchronise, so they
// may be captured in a CUDA graph. The caller selects the device. All return a cudaError_t as int,
// 0 for success; an empty problem enqueues what its (zero) result needs and nothing else.
//
// Every output element is summed in one order, which depends on sizes and alignment only, neither
// on scheduling nor on the device: repeated calls give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace wpnode::cuda {

enum class DType { kFloat32, kFloat64, kFloat16, kBFloat16 };

// Sums, weights, left-hand sides and losses are float64 for float64 data, float32 for the others.
std::size_t element_size(DType dtype);
std::size_t accumulator_size(DType dtype);

// Largest number of samples, segments, channels and nodes. Kernels count them in int; offsets of
// elements have 64 bits.
inline constexpr std::int64_t kMaxCount = (std::int64_t{1} << 30) - 1;
// Longest segments whose weights are generated from times; those weights are in shared memory.
inline constexpr std::int64_t kMaxGeneratedEll = 1024;

// Segment k of a series covers the ell + 1 samples from its start s_k on.
struct Problem {
    DType dtype = DType::kFloat32;  // of x, y, f and grad
    std::int64_t batch = 0;         // B
    std::int64_t samples = 0;       // N
    std::int64_t state = 0;         // D
    std::int64_t segments = 0;      // K
    std::int64_t ell = 0;
    std::int64_t q = 1;  // s_k = k * q; the last segment must end inside the series
    // [K] non-decreasing, instead of q; nullptr if uniform. A start outside 0 .. N - 1 - ell makes
    // the residual of its segment NaN, and so every sum that contains it. Starts out of order give
    // meaningless results, but no access outside the arrays.
    const std::int64_t* starts = nullptr;
    // Largest grid a launch may use; the default is the hardware's limit.
    std::int64_t max_blocks = (std::int64_t{1} << 31) - 1;
};

// Which weights the product rule for times generates; see core/weights.h for the formulas.
enum class WeightKind { kRhs, kLhsFirstOrder, kLhsSecondOrder };

struct Weights {
    // Accumulator type: [ell + 1], or [K, ell + 1] if per_segment. nullptr: generated from `times`.
    const void* values = nullptr;
    bool per_segment = false;
    // float64 [N], increasing: every segment's weights come from its own times by the linear
    // product rule, inside the kernel.
    const double* times = nullptr;
    int p = 0;  // 1 .. 64; at least 2 for kLhsSecondOrder
    WeightKind kind = WeightKind::kRhs;
};

// y[b, k, d] = sum_i w[(k,) i] x[b, s_k + i, d]
int launch_corr(const Problem& problem, const Weights& weights,
                const void* x,  // [B, N, D]
                void* y,        // [B, K, D]
                void* stream);

// x[b, n, d] = sum over (k, i) with s_k + i = n of w[(k,) i] y[b, k, d]
int launch_corr_t(const Problem& problem, const Weights& weights,
                  const void* y,  // [B, K, D]
                  void* x,        // [B, N, D]
                  void* stream);

// loss = scale * sum r^2 with r = lhs + corr(f)
std::size_t weak_loss_workspace(const Problem& problem, const Weights& weights);
int launch_weak_loss(const Problem& problem, const Weights& weights,
                     const void* lhs,  // [B, K, D], accumulator type
                     const void* f,    // [B, N, D]
                     double scale,
                     void* loss,       // accumulator type, one element
                     void* workspace,  // weak_loss_workspace bytes, 8-byte aligned
                     void* stream);

// The same loss and grad = 2 * scale * corr_t(r), its derivative with respect to f. The residual
// lives in shared memory only.
std::size_t weak_loss_grad_workspace(const Problem& problem, const Weights& weights);
int launch_weak_loss_grad(const Problem& problem, const Weights& weights,
                          const void* lhs,  // [B, K, D], accumulator type
                          const void* f,    // [B, N, D]
                          double scale,
                          void* loss,       // accumulator type, one element
                          void* grad,       // [B, N, D]
                          void* workspace,  // weak_loss_grad_workspace bytes, 8-byte aligned
                          void* stream);

// gw[i] = sum_{b, k, d} y[b, k, d] x[b, s_k + i, d], or one row per segment.
std::size_t corr_w_workspace(const Problem& problem, bool per_segment);
int launch_corr_w(const Problem& problem, bool per_segment,
                  const void* y,    // [B, K, D]
                  const void* x,    // [B, N, D]
                  void* gw,         // accumulator type, [ell + 1] or [K, ell + 1]
                  void* workspace,  // corr_w_workspace bytes, 8-byte aligned
                  void* stream);

// Weights by the linear product rule, float64. Either `times` (then segment k covers the samples
// from k * q or starts[k] on and every segment has a row) or equidistant samples dt apart (times
// nullptr; one row). Starts outside the series give NaN rows.
int launch_weights(const Problem& problem,  // samples, segments, ell, q, starts
                   const double* times, double dt, int p,
                   int order,      // 1 or 2: derivative order of the equation
                   double* w_lhs,  // [K, ell + 1] or [ell + 1]
                   double* w_rhs,  // the same shape
                   void* stream);

// values[i] *= factor for i < count. If the factor is 1, the kernel reads the factor only.
int launch_scale(DType dtype, std::int64_t count,
                 const void* factor,  // accumulator type, one element
                 void* values,        // of the dtype
                 void* stream);

// Text for an error a launcher returned.
const char* error_text(int error);

}  // namespace wpnode::cuda
