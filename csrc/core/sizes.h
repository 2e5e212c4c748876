// Arithmetic with sizes that may be any int64. It never overflows.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace wpnode::core {

// Largest number of elements of an array, far more than any memory holds. It leaves room: a few
// such arrays of 8 bytes an element still have a size in bytes that fits into int64, so the index
// arithmetic of the kernels cannot overflow.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 56;

// Product of sizes >= 0, or kMaxElements + 1 if it is larger than kMaxElements. A size of 0 counts
// as 1: an empty array may have huge axes, and kernels multiply those as well.
constexpr std::int64_t count_elements(std::initializer_list<std::int64_t> sizes) {
    std::int64_t product = 1;
    for (const std::int64_t size : sizes) {
        const std::int64_t factor = size > 1 ? size : 1;
        if (factor > kMaxElements / product) return kMaxElements + 1;
        product *= factor;
    }
    return product;
}

constexpr bool is_countable(std::initializer_list<std::int64_t> sizes) {
    return count_elements(sizes) <= kMaxElements;
}

// a / b rounded up, a >= 0 and b >= 1.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

}  // namespace wpnode::core
