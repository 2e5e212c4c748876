// Multiplies values by a factor that is on the device, and moves no value if the factor is one.
//
// The forward pass of the fused loss computes its gradient. Backward multiplies it by the incoming
// gradient, which is one unless the loss was scaled. The host cannot know without waiting for the
// device, so every block reads the factor and returns if it is one.
//     read  4 or 8 bytes a block; if the factor is not one, also every value
//     write every value if the factor is not one, else nothing.

#include "core/sizes.h"
#include "cuda/dispatch.h"
#include "cuda/types.cuh"

namespace wpnode::cuda {
namespace {

constexpr int kThreads = 256;
// A few blocks for each multiprocessor of a large device: enough to fill its memory's queues.
constexpr std::int64_t kBlocks = 1024;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    scale_kernel(const std::int64_t count, const AccumulatorOf<T>* __restrict__ factor,
                 T* __restrict__ values) {
    const AccumulatorOf<T> given = load_global(factor);
    if (given == AccumulatorOf<T>(1)) return;
    // torch rounds a scalar tensor to the type of the values before it multiplies; so does this.
    const AccumulatorOf<T> by = widen(narrow<T>(given));
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
    for (std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; e < count;
         e += stride) {
        store_global(values + e, narrow<T>(by * widen(load_global(values + e))));
    }
}

}  // namespace

int launch_scale(DType dtype, std::int64_t count, const void* factor, void* values, void* stream) {
    if (count < 0 || count > core::kMaxElements) return cudaErrorInvalidValue;
    if (count == 0) return cudaSuccess;
    const auto blocks = static_cast<unsigned>(std::min(core::ceil_div(count, kThreads), kBlocks));
    return dispatch_type(dtype, [&]<typename T>() {
        auto kernel = &scale_kernel<T>;
        WPNODE_LAUNCH(kernel, dim3(blocks), dim3(kThreads), 0, stream, count,
                      static_cast<const AccumulatorOf<T>*>(factor), static_cast<T*>(values));
        return static_cast<int>(cudaGetLastError());
    });
}

}  // namespace wpnode::cuda
