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

// Rows are short, so a call of memcpy each would cost more than the copy: values move in blocks of
// kBlock, whose size the compiler knows, then one by one.
template <int kBlock, typename From, typename To>
void copy_rows_by(const From* from, std::int64_t from_stride, To* to, std::int64_t to_stride,
                  std::int64_t n_rows, std::int64_t width) {
    for (std::int64_t row = 0; row < n_rows; ++row, from += from_stride, to += to_stride) {
        std::int64_t c = 0;
        for (; c + kBlock <= width; c += kBlock)
            for (int i = 0; i < kBlock; ++i) to[c + i] = convert<To>(from[c + i]);
        if constexpr (kBlock > 4)
            for (; c < width; ++c) to[c] = convert<To>(from[c]);
    }
}

template <typename From, typename To>
void copy_rows(const From* from, std::int64_t from_stride, To* to, std::int64_t to_stride,
               std::int64_t n_rows, std::int64_t width) {
    switch (width) {
        case 1:
            return copy_rows_by<1>(from, from_stride, to, to_stride, n_rows, width);
        case 2:
            return copy_rows_by<2>(from, from_stride, to, to_stride, n_rows, width);
        case 3:
            return copy_rows_by<3>(from, from_stride, to, to_stride, n_rows, width);
        case 4:
            return copy_rows_by<4>(from, from_stride, to, to_stride, n_rows, width);
        default:
            return copy_rows_by<8>(from, from_stride, to, to_stride, n_rows, width);
    }
}

}  // namespace wpnode::cpu
