// Moving rows of `width` values between strided memory and scratch, converting on the way.
#pragma once

#include <cstdint>
#include <type_traits>

#include "half.h"

namespace wpnode::cpu {

template <typename To, typename From>
To convert(From x) {
    if constexpr (std::is_same_v<To, From>) {
        return x;
    } else if constexpr (std::is_same_v<To, AccumulatorOf<From>>) {
        return widen(x);
    } else {
        return narrow<To>(x);
    }
}

// Rows are short, so a call of memcpy each would cost more than the copy. Widths below eight are
// known to the compiler; wider rows move in blocks of eight, then one by one.
template <int kWidth, typename From, typename To>
void copy_narrow_rows(const From* from, std::int64_t from_stride, To* to, std::int64_t to_stride,
                      std::int64_t n_rows) {
    for (std::int64_t row = 0; row < n_rows; ++row, from += from_stride, to += to_stride)
        for (int c = 0; c < kWidth; ++c) to[c] = convert<To>(from[c]);
}

template <typename From, typename To>
void copy_wide_rows(const From* from, std::int64_t from_stride, To* to, std::int64_t to_stride,
                    std::int64_t n_rows, std::int64_t width) {
    constexpr int kBlock = 8;
    for (std::int64_t row = 0; row < n_rows; ++row, from += from_stride, to += to_stride) {
        std::int64_t c = 0;
        for (; c + kBlock <= width; c += kBlock)
            for (int i = 0; i < kBlock; ++i) to[c + i] = convert<To>(from[c + i]);
        for (; c < width; ++c) to[c] = convert<To>(from[c]);
    }
}

template <typename From, typename To>
void copy_rows(const From* from, std::int64_t from_stride, To* to, std::int64_t to_stride,
               std::int64_t n_rows, std::int64_t width) {
    if (from_stride == width && to_stride == width) {
        copy_wide_rows(from, 0, to, 0, 1, n_rows * width);
        return;
    }
    switch (width) {
        case 1:
            return copy_narrow_rows<1>(from, from_stride, to, to_stride, n_rows);
        case 2:
            return copy_narrow_rows<2>(from, from_stride, to, to_stride, n_rows);
        case 3:
            return copy_narrow_rows<3>(from, from_stride, to, to_stride, n_rows);
        case 4:
            return copy_narrow_rows<4>(from, from_stride, to, to_stride, n_rows);
        case 5:
            return copy_narrow_rows<5>(from, from_stride, to, to_stride, n_rows);
        case 6:
            return copy_narrow_rows<6>(from, from_stride, to, to_stride, n_rows);
        case 7:
            return copy_narrow_rows<7>(from, from_stride, to, to_stride, n_rows);
        default:
            return copy_wide_rows(from, from_stride, to, to_stride, n_rows, width);
    }
}

}  // namespace wpnode::cpu
