// Memory access of the running thread: alignment check, traffic counters, then the plain access.
#pragma once

#include <cstdint>
#include <source_location>

#include "simulator/runtime.h"
#include "simulator/traffic.h"

namespace cuda_sim {

template <typename T>
void check_access(traffic::Space space, const T* address, const std::source_location& where) {
    if (reinterpret_cast<std::uintptr_t>(address) % sizeof(T) != 0) {
        fail("misaligned access", where);
    }
    if (traffic::enabled()) traffic::record(space, address, sizeof(T), where);
}

template <typename T>
T read(traffic::Space space, const T* address, const std::source_location& where) {
    check_access(space, address, where);
    return *address;
}

template <typename T>
void write(traffic::Space space, T* address, const T& value, const std::source_location& where) {
    check_access(space, address, where);
    *address = value;
}

// A lane that a predicate keeps from an access the rest of its warp makes.
inline void skip(traffic::Space space, const std::source_location& where) {
    if (traffic::enabled()) traffic::record(space, nullptr, 0, where);
}

}  // namespace cuda_sim

template <typename T>
T __ldg(const T* address, const std::source_location& where = std::source_location::current()) {
    return cuda_sim::read(cuda_sim::traffic::Space::kGlobalLoad, address, where);
}
