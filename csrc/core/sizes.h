// Arithmetic with sizes that may come from anywhere in int64: it never wraps round.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace wpnode::core {

// Most elements of an array, far beyond any memory: 8 bytes each, counted several times over, still
// fit into int64. Within it the kernels' own index arithmetic cannot overflow.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 56;

// Product of sizes >= 0; kMaxElements + 1 stands for every larger one. A size of 0 counts as 1, so
// that what is true of the product is true of its parts: an empty array may have huge axes.
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
