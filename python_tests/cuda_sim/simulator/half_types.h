// 16-bit floating-point storage types with the conversions the kernels use.
//
// Narrowing rounds to nearest, ties to even, as __float2half_rn and __float2bfloat16_rn do.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

struct __half {
    std::uint16_t bits;
};
struct __nv_bfloat16 {
    std::uint16_t bits;
};

inline float __half2float(__half h) {
    const unsigned exponent = (h.bits >> 10) & 31u;
    const unsigned mantissa = h.bits & 1023u;
    const float sign = (h.bits & 0x8000u) ? -1.0f : 1.0f;
    if (exponent == 31) {
        const std::uint32_t bits =
            (static_cast<std::uint32_t>(h.bits & 0x8000u) << 16) | 0x7f800000u | (mantissa << 13);
        return std::bit_cast<float>(bits);
    }
    if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
    return sign * std::ldexp(static_cast<float>(mantissa + 1024), static_cast<int>(exponent) - 25);
}

inline __half __float2half_rn(float x) {
    const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    const auto pack = [sign](unsigned magnitude) {
        return __half{static_cast<std::uint16_t>(sign | magnitude)};
    };
    const float size = std::fabs(x);
    if (std::isnan(x)) return pack(0x7fff);
    if (size >= 65520.0f) return pack(0x7c00);  // halfway between the largest half and 2^16
    int exponent = 0;
    std::frexp(size, &exponent);
    // One unit in the last place of the result; subnormals share the unit 2^-24.
    const int unit = size < 0x1p-14f ? -24 : exponent - 11;
    const auto count = static_cast<unsigned>(std::nearbyint(std::ldexp(size, -unit)));
    // A count of 1024 .. 2048 carries the implicit bit (or the carry) into the exponent field.
    return pack((static_cast<unsigned>(unit + 24) << 10) + count);
}

inline float __bfloat162float(__nv_bfloat16 b) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(b.bits) << 16);
}

inline __nv_bfloat16 __float2bfloat16_rn(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if (std::isnan(x)) return {0x7fff};
    const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    return {static_cast<std::uint16_t>(rounded >> 16)};
}
