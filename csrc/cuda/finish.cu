// Adds the sums the blocks of a first pass left behind, one block per column.
//
// Every thread adds a strided share in a fixed order, then the block its threads: the result does
// not depend on scheduling. Traffic: 8 bytes per tile of the first pass, read once.

#include "cuda/finish.h"
#include "cuda/reduce.cuh"

namespace wpnode::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxColumns = (std::int64_t{1} << 31) - 1;

template <typename A>
__global__ void __launch_bounds__(kThreads)
    finish_kernel(const double* __restrict__ partial, const std::int64_t rows,
                  const std::int64_t columns, const double scale, A* __restrict__ out) {
    WPNODE_DYNAMIC_SHARED(memory);
    double sum = 0.0;
    for (std::int64_t t = threadIdx.x; t < rows; t += kThreads) {
        sum += load_global(partial + t * columns + blockIdx.x);
    }
    sum = block_sum(sum, reinterpret_cast<double*>(memory));
    if (threadIdx.x == 0) store_global(out + blockIdx.x, static_cast<A>(scale * sum));
}

template <typename A>
int finish(const void* partial, std::int64_t rows, std::int64_t columns, double scale, void* out,
           void* stream) {
    auto kernel = &finish_kernel<A>;
    WPNODE_LAUNCH(kernel, dim3(static_cast<unsigned>(columns)), dim3(kThreads),
                  kThreads / 32 * sizeof(double), stream, static_cast<const double*>(partial), rows,
                  columns, scale, static_cast<A*>(out));
    return static_cast<int>(cudaGetLastError());
}

}  // namespace

int launch_finish(DType dtype, const void* partial, std::int64_t rows, std::int64_t columns,
                  double scale, void* out, void* stream) {
    if (columns > kMaxColumns) return cudaErrorInvalidValue;
    return dtype == DType::kFloat64 ? finish<double>(partial, rows, columns, scale, out, stream)
                                    : finish<float>(partial, rows, columns, scale, out, stream);
}

}  // namespace wpnode::cuda
