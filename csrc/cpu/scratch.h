// Per-thread working memory, grown on demand and kept between calls: tiles are a few hundred
// kilobytes, which an allocator would map and fault in anew for every call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "microkernels.h"

namespace wpnode::cpu {

class Scratch {
  public:
    static Scratch& of_this_thread() {
        thread_local Scratch scratch;
        return scratch;
    }

    // Makes room for `count` values in at most `n_arrays` arrays and forgets earlier arrays.
    template <typename T>
    void reserve(std::int64_t count, int n_arrays) {
        const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T) +
                                  static_cast<std::size_t>(n_arrays) * padding<T>();
        if (bytes > capacity_) {
            memory_.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
            capacity_ = bytes;
        }
        used_ = 0;
    }

    // An array of `count` values whose overrun region is zero; the values are left as they are.
    template <typename T>
    T* take(std::int64_t count) {
        T* array = reinterpret_cast<T*>(memory_.get() + used_);
        std::memset(array + count, 0, kOverrun * sizeof(T));
        used_ += round_up(static_cast<std::size_t>(count + kOverrun) * sizeof(T));
        return array;
    }

  private:
    static constexpr std::align_val_t kAlignment{64};
    struct Free {
        void operator()(std::byte* p) const { ::operator delete(p, kAlignment); }
    };
    static constexpr std::size_t round_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
    template <typename T>
    static constexpr std::size_t padding() {
        return kOverrun * sizeof(T) + 64;
    }

    std::unique_ptr<std::byte, Free> memory_;
    std::size_t capacity_ = 0;
    std::size_t used_ = 0;
};

}  // namespace wpnode::cpu
