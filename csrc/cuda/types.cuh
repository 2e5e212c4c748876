// Storage and accumulation types, and groups of elements that move in one access.
#pragma once

#include <limits>

#include "core/accumulator.h"
#include "cuda/device.cuh"

namespace wpnode::cuda {

template <typename A>
inline constexpr A kNan = std::numeric_limits<A>::quiet_NaN();

using core::AccumulatorOf;

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ __forceinline__ T narrow(AccumulatorOf<T> x) {
    return x;
}
template <>
__device__ __forceinline__ __half narrow<__half>(float x) {
    return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}

// V neighbouring elements, moved in one access: vector_width of them, or 1 on the scalar path.
template <typename T, int V>
struct alignas(sizeof(T) * V) Pack {
    T v[V];
};

template <typename T, int V>
__device__ __forceinline__ const Pack<T, V>* as_packs(const T* p) {
    return reinterpret_cast<const Pack<T, V>*>(p);
}
template <typename T, int V>
__device__ __forceinline__ Pack<T, V>* as_packs(T* p) {
    return reinterpret_cast<Pack<T, V>*>(p);
}

// V values in accumulation precision.
template <typename T, int V>
struct Values {
    using A = AccumulatorOf<T>;
    A v[V] = {};

    __device__ __forceinline__ void add_product(A weight, const Pack<T, V>& x) {
#pragma unroll
        for (int c = 0; c < V; ++c) v[c] += weight * widen(x.v[c]);
    }
    __device__ __forceinline__ void add_product(A weight, const Values& x) {
#pragma unroll
        for (int c = 0; c < V; ++c) v[c] += weight * x.v[c];
    }
    template <typename S>
    __device__ __forceinline__ void add(const Pack<S, V>& x) {
#pragma unroll
        for (int c = 0; c < V; ++c) v[c] += widen(x.v[c]);
    }
    __device__ __forceinline__ A dot(const Pack<T, V>& x) const {
        A sum = 0;
#pragma unroll
        for (int c = 0; c < V; ++c) sum += v[c] * widen(x.v[c]);
        return sum;
    }
    __device__ __forceinline__ void fill(A value) {
#pragma unroll
        for (int c = 0; c < V; ++c) v[c] = value;
    }
    __device__ __forceinline__ A sum_of_squares() const {
        A sum = 0;
#pragma unroll
        for (int c = 0; c < V; ++c) sum += v[c] * v[c];
        return sum;
    }
    __device__ __forceinline__ Pack<T, V> narrowed(A factor) const {
        Pack<T, V> result;
#pragma unroll
        for (int c = 0; c < V; ++c) result.v[c] = narrow<T>(factor * v[c]);
        return result;
    }
};

}  // namespace wpnode::cuda
