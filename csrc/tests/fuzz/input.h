// Reads numbers from the bytes of a fuzzer; past their end all numbers are zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace wpnode::fuzz {

class Input {
  public:
    Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}

    template <typename T>
    T take() {
        T value{};
        const std::size_t count = sizeof(T) < left_ ? sizeof(T) : left_;
        std::memcpy(&value, data_, count);
        data_ += count;
        left_ -= count;
        return value;
    }

    // From 0 to most.
    std::int64_t below(std::int64_t most) { return take<std::uint16_t>() % (most + 1); }

    // Any int64, most often small, near a power of two or near an end.
    std::int64_t integer() {
        const auto kind = take<std::uint8_t>();
        const auto offset = static_cast<std::int64_t>(take<std::int8_t>());
        switch (kind % 8) {
            case 0:
            case 1:
            case 2:
            case 3:
                return static_cast<std::uint8_t>(offset);
            case 4:
                return (std::int64_t{1} << (kind / 8 % 62)) + offset;
            case 5:
                return std::numeric_limits<std::int64_t>::max() - static_cast<std::uint8_t>(offset);
            case 6:
                return std::numeric_limits<std::int64_t>::min() + static_cast<std::uint8_t>(offset);
            default:
                return take<std::int64_t>();
        }
    }

  private:
    const std::uint8_t* data_;
    std::size_t left_;
};

}  // namespace wpnode::fuzz
