// Adds the sums the blocks of a first pass left behind.
//
// One column: one block, every thread a strided share. Many columns: a warp reads 32 neighbouring
// columns at a time, and the warps of a block share the rows. Both add in a fixed order, so the
// result does not depend on scheduling. Traffic: every partial sum is read once.

#include "cuda/finish.h"
#include "cuda/reduce.cuh"

namespace wpnode::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

template <typename A>
__global__ void __launch_bounds__(kThreads, 4)
    finish_kernel(const double* __restrict__ partial, const std::int64_t rows, const double scale,
                  A* __restrict__ out) {
    WPNODE_DYNAMIC_SHARED(memory);
    double sum = 0.0;
    for (std::int64_t t = threadIdx.x; t < rows; t += kThreads) sum += load_global(partial + t);
    sum = block_sum(sum, reinterpret_cast<double*>(memory));
    if (threadIdx.x == 0) store_global(out, static_cast<A>(scale * sum));
}

template <typename A>
__global__ void __launch_bounds__(kThreads, 4)
    finish_columns_kernel(const double* __restrict__ partial, const std::int64_t rows,
                          const std::int64_t columns, const double scale, A* __restrict__ out) {
    WPNODE_DYNAMIC_SHARED(memory);
    auto* sums = reinterpret_cast<double*>(memory);
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x % 32;
    double sum = 0.0;
    for (std::int64_t t = threadIdx.x / 32; t < rows; t += kWarps) {
        if (column < columns) sum += load_global(partial + t * columns + column);
    }
    store_shared(sums + threadIdx.x, sum);
    __syncthreads();
    if (threadIdx.x >= 32 || column >= columns) return;
    for (int warp = 1; warp < kWarps; ++warp) sum += load_shared(sums + warp * 32 + threadIdx.x);
    store_global(out + column, static_cast<A>(scale * sum));
}

template <typename A>
int finish(const void* partial, std::int64_t rows, std::int64_t columns, double scale, void* out,
           void* stream) {
    const auto* from = static_cast<const double*>(partial);
    auto* to = static_cast<A*>(out);
    if (columns == 1) {
        auto kernel = &finish_kernel<A>;
        WPNODE_LAUNCH(kernel, dim3(1), dim3(kThreads), kWarps * sizeof(double), stream, from, rows,
                      scale, to);
    } else {
        auto kernel = &finish_columns_kernel<A>;
        const auto blocks = static_cast<unsigned>((columns + 31) / 32);
        WPNODE_LAUNCH(kernel, dim3(blocks), dim3(kThreads), kThreads * sizeof(double), stream, from,
                      rows, columns, scale, to);
    }
    return static_cast<int>(cudaGetLastError());
}

}  // namespace

int launch_finish(DType dtype, const void* partial, std::int64_t rows, std::int64_t columns,
                  double scale, void* out, void* stream) {
    return dtype == DType::kFloat64 ? finish<double>(partial, rows, columns, scale, out, stream)
                                    : finish<float>(partial, rows, columns, scale, out, stream);
}

}  // namespace wpnode::cuda
