// One register of values, for the instruction set of the including translation unit, which defines
// WPNODE_VECTOR_BYTES. Vector types are GCC/Clang extensions, so the same source serves SSE2, NEON,
// AVX2 and AVX-512. Everything sits in an anonymous namespace: a function compiled for AVX-512 must
// never be the copy the linker keeps for the rest of the program.
#pragma once

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include <cstdint>

namespace wpnode::cpu {
namespace {

template <typename T>
struct Vector {
    static constexpr std::int64_t kBytes = WPNODE_VECTOR_BYTES;
    static constexpr int kLanes = WPNODE_VECTOR_BYTES / static_cast<int>(sizeof(T));
    using Aligned __attribute__((vector_size(WPNODE_VECTOR_BYTES))) = T;
    using Unaligned
        __attribute__((vector_size(WPNODE_VECTOR_BYTES), aligned(alignof(T)), may_alias)) = T;

    static Aligned load(const T* p) { return *reinterpret_cast<const Unaligned*>(p); }
    static void store(T* p, Aligned v) { *reinterpret_cast<Unaligned*>(p) = v; }
    static Aligned broadcast(T x) { return x - Aligned{}; }

    // A store past the caches; `p` is aligned to kBytes. Others see it after stream_fence(). Only
    // whole lines: halves that are not joined in time cost a memory access each.
    static constexpr bool kStreams = kBytes == 64;
    static void stream(T* p, Aligned v) {
#if defined(__AVX512F__) && WPNODE_VECTOR_BYTES == 64
        _mm512_stream_si512(reinterpret_cast<__m512i*>(p), reinterpret_cast<__m512i>(v));
#else
        store(p, v);
#endif
    }
};

// As many values as a register holds in float64.
inline Vector<double>::Aligned load_wide(const double* p) { return Vector<double>::load(p); }
inline Vector<double>::Aligned load_wide(const float* p) {
#if defined(__AVX512F__) && WPNODE_VECTOR_BYTES == 64
    // The form without a mask makes GCC 12 warn of an uninitialised value; the code is the same.
    return _mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(p));
#elif defined(__AVX2__) && WPNODE_VECTOR_BYTES == 32
    return _mm256_cvtps_pd(_mm_loadu_ps(p));
#else
    Vector<double>::Aligned wide;
    for (int i = 0; i < Vector<double>::kLanes; ++i) wide[i] = p[i];
    return wide;
#endif
}

inline void stream_fence() {
#ifdef __SSE2__
    _mm_sfence();
#endif
}

}  // namespace
}  // namespace wpnode::cpu
