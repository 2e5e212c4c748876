// The CUDA language for g++: include this instead of the toolkit's headers and compile the .cu file
// as C++. See runtime.h for what the simulator checks.
#pragma once

#include <functional>

#include "simulator/half_types.h"
#include "simulator/intrinsics.h"
#include "simulator/memory.h"
#include "simulator/runtime.h"
#include "simulator/traffic.h"
#include "simulator/vector_types.h"

using cudaError_t = int;
using cudaStream_t = void*;  // launches run at once, in program order
inline constexpr cudaError_t cudaSuccess = 0;
inline constexpr cudaError_t cudaErrorInvalidValue = 1;
inline cudaError_t cudaGetLastError() { return cuda_sim::take_last_error(); }
inline const char* cudaGetErrorString(cudaError_t error) {
    return error == cudaSuccess ? "no error" : "invalid launch configuration or argument";
}
