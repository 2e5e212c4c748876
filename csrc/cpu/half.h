// 16-bit storage types: kept in memory as they are, widened to float32 when rows are packed.
#pragma once

#include <bit>
#include <cstdint>

#include "../core/accumulator.h"

namespace wpnode::cpu {

struct BFloat16 {
    std::uint16_t bits;

    explicit operator float() const {
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }
    static BFloat16 from(float x) {
        const auto u = std::bit_cast<std::uint32_t>(x);
        if ((u & 0x7fffffffu) > 0x7f800000u) return {0x7fc0};  // NaN stays NaN after truncation
        return {static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
    }
};

struct Half {
    std::uint16_t bits;

    // Shift exponent and mantissa into place and rescale by 2^112: exact for normal and subnormal
    // numbers alike. Infinity and NaN carry exponent 31, which the rescaling would make finite.
    explicit operator float() const {
        const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
        const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7fffu) << 13;
        if (magnitude >= 0x0f800000u) return std::bit_cast<float>(sign | magnitude | 0x7f800000u);
        const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
        return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
    }

    // Round to nearest even. Below the normal range adding 0.5 aligns the mantissa so that the
    // floating-point adder itself rounds at the last half-precision place.
    static Half from(float x) {
        const auto u = std::bit_cast<std::uint32_t>(x);
        const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
        const std::uint32_t magnitude = u & 0x7fffffffu;
        if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
        if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
        if (magnitude < 0x38800000u) {
            const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
            const std::uint32_t rounded = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
            return {static_cast<std::uint16_t>(sign | rounded)};
        }
        const std::uint32_t odd = (magnitude >> 13) & 1u;
        return {
            static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13))};
    }
};

// Conversions to and from the type of sums.
using core::AccumulatorOf;

template <typename S>
AccumulatorOf<S> widen(S x) {
    return static_cast<AccumulatorOf<S>>(x);
}

template <typename S>
S narrow(AccumulatorOf<S> x) {
    if constexpr (requires { S::from(x); }) {
        return S::from(x);
    } else {
        return x;
    }
}

}  // namespace wpnode::cpu
