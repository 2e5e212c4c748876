// Division by a number known before the launch: one multiplication, and no reciprocal kept in
// registers.
#pragma once

#include <cstdint>

#include "cuda/device.cuh"

namespace wpnode::cuda {

// n / divisor for 0 <= n < 2^31 as (n + floor(n * multiplier / 2^32)) >> shift, with
// multiplier = floor(2^32 (2^shift - divisor) / divisor) + 1 and 2^shift >= divisor.
class Divider {
  public:
    explicit Divider(std::int64_t divisor) : divisor_(static_cast<unsigned>(divisor)) {
        while ((std::int64_t{1} << shift_) < divisor) ++shift_;
        const std::uint64_t excess = (std::uint64_t{1} << shift_) - divisor_;
        multiplier_ = static_cast<unsigned>((excess << 32) / divisor_ + 1);
    }
    __device__ __forceinline__ int divide(int n) const {
        const auto value = static_cast<unsigned>(n);
        return static_cast<int>((value + __umulhi(value, multiplier_)) >> shift_);
    }
    __device__ __forceinline__ int remainder(int n) const {
        return n - divide(n) * static_cast<int>(divisor_);
    }

  private:
    unsigned divisor_;
    unsigned multiplier_;
    unsigned shift_ = 0;
};

}  // namespace wpnode::cuda
