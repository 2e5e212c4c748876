#include "capability.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "microkernels.h"

namespace wpnode::cpu {
namespace {

enum class Level { kBaseline, kAvx2, kAvx512 };
constexpr const char* kNames[] = {"baseline", "avx2", "avx512"};

Level supported() {
#ifdef WPNODE_HAVE_X86
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    if (avx2 && avx512) return Level::kAvx512;
    if (avx2) return Level::kAvx2;
#endif
    return Level::kBaseline;
}

Level choose() {
    const Level widest = supported();
    if (const char* wanted = std::getenv("WPNODE_CPU_CAPABILITY")) {
        for (const Level level : {Level::kBaseline, Level::kAvx2, Level::kAvx512})
            if (std::string_view(wanted) == kNames[static_cast<int>(level)])
                return std::min(level, widest);
    }
    return widest;
}

Level level() {
    static const Level chosen = choose();
    return chosen;
}

template <typename T>
const Microkernels<T>& select() {
#ifdef WPNODE_HAVE_X86
    if (level() == Level::kAvx512) return microkernels_avx512<T>();
    if (level() == Level::kAvx2) return microkernels_avx2<T>();
#endif
    return microkernels_baseline<T>();
}

}  // namespace

const char* capability() { return kNames[static_cast<int>(level())]; }

const char* compiled_capabilities() {
#ifdef WPNODE_HAVE_X86
    return "baseline avx2 avx512";
#else
    return "baseline";
#endif
}

template <>
const Microkernels<float>& microkernels<float>() {
    return select<float>();
}

template <>
const Microkernels<double>& microkernels<double>() {
    return select<double>();
}

}  // namespace wpnode::cpu
