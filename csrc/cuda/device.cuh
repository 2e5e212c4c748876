// Included by every kernel file: the device language, the launch macro and memory access.
//
// Under nvcc the access functions are plain loads and stores. Under g++ the simulator stands in for
// the toolkit and the same functions also check alignment and count traffic.
#pragma once

#if defined(__CUDACC__)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define WPNODE_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    (kernel)<<<(grid), (block), (shared_bytes), static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__)
#define WPNODE_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]

namespace wpnode::cuda {

template <typename T>
__device__ __forceinline__ T load_global(const T* p) {
    return *p;
}
template <typename T>
__device__ __forceinline__ T load_global_if(bool wanted, const T* p, T otherwise) {
    return wanted ? *p : otherwise;
}
template <typename T>
__device__ __forceinline__ void store_global(T* p, const T& value) {
    *p = value;
}
template <typename T>
__device__ __forceinline__ T load_shared(const T* p) {
    return *p;
}
template <typename T>
__device__ __forceinline__ void store_shared(T* p, const T& value) {
    *p = value;
}

}  // namespace wpnode::cuda

#else

#include "simulator/cuda_sim.h"

#define WPNODE_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    ((void)(stream),                                                  \
     ::cuda_sim::launch((grid), (block), (shared_bytes), [&] { (kernel)(__VA_ARGS__); }))
#define WPNODE_DYNAMIC_SHARED(name) unsigned char* const name = ::cuda_sim::dynamic_shared()

namespace wpnode::cuda {

using cuda_sim::Here;
using cuda_sim::traffic::Space;

template <typename T>
T load_global(const T* p, const Here& where = Here::current()) {
    return cuda_sim::read(Space::kGlobalLoad, p, where);
}
template <typename T>
T load_global_if(bool wanted, const T* p, T otherwise, const Here& where = Here::current()) {
    if (wanted) return cuda_sim::read(Space::kGlobalLoad, p, where);
    cuda_sim::skip(Space::kGlobalLoad, where);
    return otherwise;
}
template <typename T>
void store_global(T* p, const T& value, const Here& where = Here::current()) {
    cuda_sim::write(Space::kGlobalStore, p, value, where);
}
template <typename T>
T load_shared(const T* p, const Here& where = Here::current()) {
    return cuda_sim::read(Space::kSharedLoad, p, where);
}
template <typename T>
void store_shared(T* p, const T& value, const Here& where = Here::current()) {
    cuda_sim::write(Space::kSharedStore, p, value, where);
}

}  // namespace wpnode::cuda

#endif
