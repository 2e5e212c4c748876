// Sums over a block, in a fixed order.
#pragma once

#include "cuda/device.cuh"

namespace wpnode::cuda {

// Sum over all threads, valid in thread 0. `scratch` holds one double per warp. All threads call
// it; blockDim.x must be a multiple of 32.
__device__ inline double block_sum(double value, double* scratch) {
    constexpr unsigned kAllLanes = 0xffffffffu;
    for (int delta = 16; delta > 0; delta /= 2) {
        value += __shfl_down_sync(kAllLanes, value, delta);
    }
    __syncthreads();  // readers of an earlier sum
    if (threadIdx.x % 32 == 0) store_shared(scratch + threadIdx.x / 32, value);
    __syncthreads();
    if (threadIdx.x == 0) {
        value = 0.0;
        for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) {
            value += load_shared(scratch + warp);
        }
    }
    return value;
}

}  // namespace wpnode::cuda
