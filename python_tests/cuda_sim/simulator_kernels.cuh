// Small kernels, right and wrong on purpose, that show what the simulator and the sanitizers see.
#pragma once

#include "cuda/device.cuh"

namespace simulator_kernels {

using wpnode::cuda::load_global;
using wpnode::cuda::load_shared;
using wpnode::cuda::store_shared;

inline constexpr int kThreads = 64;
inline constexpr unsigned kFullWarp = 0xffffffffu;

// ---- right, unless a flag takes the barrier or the atomic away -------------------------------

__global__ inline void reversed(const float* in, float* out, bool barrier_after_write,
                                bool barrier_after_read) {
    WPNODE_DYNAMIC_SHARED(memory);
    auto* tile = reinterpret_cast<float*>(memory);
    for (int round = 0; round < 2; ++round) {
        tile[threadIdx.x] = in[round * kThreads + threadIdx.x];
        if (barrier_after_write) __syncthreads();
        out[round * kThreads + threadIdx.x] = tile[kThreads - 1 - threadIdx.x];
        if (barrier_after_read) __syncthreads();
    }
}

__global__ inline void sum_over_blocks(const float* in, float* out, bool atomic) {
    const float value = in[blockIdx.x * blockDim.x + threadIdx.x];
    if (atomic) {
        atomicAdd(out, value);
    } else if (threadIdx.x == 0) {
        *out += value;
    }
}

__global__ inline void warp_sum(const float* in, float* out) {
    float value = in[threadIdx.x];
    for (int delta = 16; delta > 0; delta /= 2) value += __shfl_down_sync(kFullWarp, value, delta);
    if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = value;
}

__global__ inline void votes(float* out) {
    const int odd = threadIdx.x % 2;
    const float found[] = {
        static_cast<float>(__ballot_sync(kFullWarp, odd) == 0xaaaaaaaau),
        static_cast<float>(__any_sync(kFullWarp, threadIdx.x == 3)),
        static_cast<float>(__all_sync(kFullWarp, odd)),
        static_cast<float>(__syncthreads_count(odd)),
        static_cast<float>(__syncthreads_or(threadIdx.x == 5)),
        static_cast<float>(__syncthreads_and(threadIdx.x != 5)),
        __shfl_xor_sync(kFullWarp, static_cast<float>(threadIdx.x), 1),
        __shfl_up_sync(kFullWarp, static_cast<float>(threadIdx.x), 1),
        __shfl_sync(kFullWarp, static_cast<float>(threadIdx.x), 2, 8),
    };
    if (threadIdx.x == 32) {
        for (int i = 0; i < 9; ++i) out[i] = found[i];
    }
}

__global__ inline void first_of_shared(float* out) {
    WPNODE_DYNAMIC_SHARED(memory);
    out[blockIdx.x] = *reinterpret_cast<float*>(memory);
    *reinterpret_cast<float*>(memory) = 1.0f;
}

// ---- deliberate mistakes ----------------------------------------------------------------------

__global__ inline void beyond_shared(float* out) {
    WPNODE_DYNAMIC_SHARED(memory);
    auto* tile = reinterpret_cast<float*>(memory);
    tile[threadIdx.x + 1] = 0.0f;
    out[threadIdx.x] = 0.0f;
}

__global__ inline void beyond_global(const float* in, float* out) {
    out[threadIdx.x] = in[threadIdx.x + 1];
}

__global__ inline void misaligned_float4(const float* in, float* out, bool checked_access) {
    const auto* address = reinterpret_cast<const float4*>(in + 1);
    const float4 four = checked_access ? load_global(address) : *address;
    out[0] = four.x;
}

__global__ inline void returned_lane_in_mask(float* out) {
    if (threadIdx.x == 7) return;
    out[threadIdx.x] = __shfl_xor_sync(kFullWarp, 1.0f, 1);
}

__global__ inline void caller_outside_mask(float* out) {
    out[threadIdx.x] = __shfl_sync(0x0000ffff, 1.0f, 0);
}

__global__ inline void different_masks(float* out) {
    out[threadIdx.x] = __shfl_sync(threadIdx.x % 32 == 0 ? 0x3 : kFullWarp, 1.0f, 0);
}

__global__ inline void shuffle_from_outside_mask(float* out) {
    if (threadIdx.x < 4) out[threadIdx.x] = __shfl_sync(0xf, 1.0f, 9);
}

__global__ inline void barrier_after_return(float* out) {
    if (threadIdx.x >= 32) return;
    __syncthreads();
    out[threadIdx.x] = 1.0f;
}

__global__ inline void barriers_in_both_branches(float* out) {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = 1.0f;
}

__global__ inline void collective_beside_barrier(float* out) {
    if (threadIdx.x < 4) {
        out[threadIdx.x] = __shfl_sync(0xff, 1.0f, 0);
    } else if (threadIdx.x < 8) {
        __syncthreads();
    }
}

// ---- traffic ----------------------------------------------------------------------------------

__global__ inline void strided_loads(const float* in, float* out, int stride, int offset) {
    out[threadIdx.x] = load_global(in + offset + stride * threadIdx.x);
}

__global__ inline void strided_shared(float* out, int stride) {
    WPNODE_DYNAMIC_SHARED(memory);
    auto* tile = reinterpret_cast<float*>(memory);
    store_shared(tile + stride * threadIdx.x, 1.0f);
    __syncthreads();
    out[threadIdx.x] = load_shared(tile + threadIdx.x / 8);
}

__global__ inline void vector_rows(float* out, int row_vectors) {
    WPNODE_DYNAMIC_SHARED(memory);
    auto* tile = reinterpret_cast<float4*>(memory);
    const float4 one = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
    store_shared(tile + threadIdx.x / 4 * row_vectors + threadIdx.x % 4, one);
    out[threadIdx.x] = 1.0f;
}

}  // namespace simulator_kernels
