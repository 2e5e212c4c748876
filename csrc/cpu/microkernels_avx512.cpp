// Micro-kernels for x86-64 with AVX-512; flags are set in CMakeLists.txt.
#define WPNODE_VECTOR_BYTES 64
#include "microkernels_impl.h"

namespace wpnode::cpu {

template <>
const Microkernels<float>& microkernels_avx512<float>() {
    return kMicrokernels<float>;
}

template <>
const Microkernels<double>& microkernels_avx512<double>() {
    return kMicrokernels<double>;
}

}  // namespace wpnode::cpu
