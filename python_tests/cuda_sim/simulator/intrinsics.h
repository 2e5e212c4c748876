// The device language: qualifiers, built-in variables, barriers, warp collectives, atomics.
#pragma once

#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "simulator/runtime.h"

#define __global__
#define __device__
#define __host__
#define __constant__ const
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
// One copy for all threads, because they share one OS thread. It keeps its value between blocks
// and looks shared between them to the thread sanitizer; dynamic shared memory does neither.
#define __shared__ static

#define threadIdx (::cuda_sim::thread_index())
#define blockIdx (::cuda_sim::block_index())
#define blockDim (::cuda_sim::block_size())
#define gridDim (::cuda_sim::grid_size())
inline constexpr int warpSize = 32;

constexpr int min(int a, int b) { return a < b ? a : b; }
constexpr int max(int a, int b) { return a < b ? b : a; }
constexpr unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>((static_cast<std::uint64_t>(a) * b) >> 32);
}

namespace cuda_sim {

using Here = std::source_location;

template <typename T>
WarpValue pack(T value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(WarpValue));
    WarpValue packed{};
    std::memcpy(&packed, &value, sizeof(T));
    return packed;
}

template <typename T>
T shuffle(unsigned mask, T value, int source_lane, const Here& where) {
    const WarpValue got =
        warp_collective(Collective::kShuffle, mask, pack(value), source_lane, where);
    T result;
    std::memcpy(&result, &got, sizeof(T));
    return result;
}

inline unsigned ballot(unsigned mask, bool predicate, const Here& where) {
    const WarpValue bit{{predicate, 0}};
    return static_cast<unsigned>(
        warp_collective(Collective::kBallot, mask, bit, 0, where).words[0]);
}

inline int lane() { return static_cast<int>(linear_thread() % kWarpSize); }

// Applies `change` to the value at `address` in one indivisible step; returns the old value.
template <typename T, typename Change>
T atomic_update(T* address, Change change) {
    T old;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    T next = change(old);
    while (!__atomic_compare_exchange(address, &old, &next, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
        next = change(old);
    }
    return old;
}

}  // namespace cuda_sim

inline void __syncthreads(const cuda_sim::Here& where = cuda_sim::Here::current()) {
    cuda_sim::block_barrier(false, "__syncthreads", where);
}
inline int __syncthreads_count(int predicate,
                               const cuda_sim::Here& where = cuda_sim::Here::current()) {
    return static_cast<int>(cuda_sim::block_barrier(predicate, "__syncthreads_count", where));
}
inline int __syncthreads_or(int predicate,
                            const cuda_sim::Here& where = cuda_sim::Here::current()) {
    return cuda_sim::block_barrier(predicate, "__syncthreads_or", where) != 0;
}
inline int __syncthreads_and(int predicate,
                             const cuda_sim::Here& where = cuda_sim::Here::current()) {
    return cuda_sim::block_barrier(!predicate, "__syncthreads_and", where) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu,
                       const cuda_sim::Here& where = cuda_sim::Here::current()) {
    cuda_sim::warp_collective(cuda_sim::Collective::kSyncWarp, mask, {}, 0, where);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              const cuda_sim::Here& where = cuda_sim::Here::current()) {
    return cuda_sim::ballot(mask, predicate, where);
}
inline int __any_sync(unsigned mask, int predicate,
                      const cuda_sim::Here& where = cuda_sim::Here::current()) {
    return cuda_sim::ballot(mask, predicate, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      const cuda_sim::Here& where = cuda_sim::Here::current()) {
    return cuda_sim::ballot(mask, !predicate, where) == 0;
}

// A source outside the sub-warp of `width` lanes means the lane's own value, as on the hardware.
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize,
              const cuda_sim::Here& where = cuda_sim::Here::current()) {
    const int first = cuda_sim::lane() / width * width;
    return cuda_sim::shuffle(mask, value, first + (source & (width - 1)), where);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                 const cuda_sim::Here& where = cuda_sim::Here::current()) {
    const int source = cuda_sim::lane() - static_cast<int>(delta);
    const bool inside = source >= cuda_sim::lane() / width * width;
    return cuda_sim::shuffle(mask, value, inside ? source : cuda_sim::lane(), where);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                   const cuda_sim::Here& where = cuda_sim::Here::current()) {
    const int source = cuda_sim::lane() + static_cast<int>(delta);
    const bool inside = source < cuda_sim::lane() / width * width + width;
    return cuda_sim::shuffle(mask, value, inside ? source : cuda_sim::lane(), where);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = warpSize,
                  const cuda_sim::Here& where = cuda_sim::Here::current()) {
    const int source = cuda_sim::lane() ^ lanes;
    const bool inside = source < cuda_sim::lane() / width * width + width;
    return cuda_sim::shuffle(mask, value, inside ? source : cuda_sim::lane(), where);
}

template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
    return cuda_sim::atomic_update(address, [value](T old) { return static_cast<T>(old + value); });
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
    return cuda_sim::atomic_update(address, [value](T old) { return old < value ? value : old; });
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
    return cuda_sim::atomic_update(address, [value](T old) { return value < old ? value : old; });
}
template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
    return cuda_sim::atomic_update(address, [value](T) { return value; });
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
    return cuda_sim::atomic_update(address, [=](T old) { return old == compare ? value : old; });
}
