// Micro-kernels for the baseline instruction set (SSE2 on x86-64, NEON on arm64); flags are set in
// CMakeLists.txt.
#define WPNODE_VECTOR_BYTES 16
#include "microkernels_impl.h"

namespace wpnode::cpu {

template <>
const Microkernels<float>& microkernels_baseline<float>() {
    return kMicrokernels<float>;
}

template <>
const Microkernels<double>& microkernels_baseline<double>() {
    return kMicrokernels<double>;
}

}  // namespace wpnode::cpu
