// Micro-kernels for x86-64 with AVX2 and FMA; flags are set in CMakeLists.txt.
#define WPNODE_VECTOR_BYTES 32
#include "microkernels_impl.h"

namespace wpnode::cpu {

template <>
const Microkernels<float>& microkernels_avx2<float>() {
    return kMicrokernels<float>;
}

template <>
const Microkernels<double>& microkernels_avx2<double>() {
    return kMicrokernels<double>;
}

}  // namespace wpnode::cpu
