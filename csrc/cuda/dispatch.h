// Host side shared by the launchers: argument checks, grids, and the choice of kernel instance.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/plan.h"
#include "cuda/weights.cuh"

namespace wpnode::cuda {

// 0, or the error a launcher returns for sizes and options no kernel can work with.
int check(const Problem& problem, const Weights* weights);

inline dim3 grid_for(const Problem& problem, std::int64_t tiles) {
    return dim3(static_cast<unsigned>(std::min(tiles, problem.max_blocks)));
}

// Kernels count tiles in 31 bits.
inline bool countable(const Plan& plan) { return plan.tiles < std::int64_t{1} << 31; }

HalfRule make_rule(const Weights& weights);

template <typename T>
WeightSource<AccumulatorOf<T>> weight_source(const Weights& weights) {
    const bool from_times = weights.values == nullptr;
    return {static_cast<const AccumulatorOf<T>*>(weights.values), weights.times,
            weights.per_segment || from_times, weights.kind};
}

// Bytes for one double per tile, whichever way the series turn out to be aligned.
std::size_t partial_bytes(const Problem& problem, const Weights& weights, Purpose purpose);

// Calls `launch.operator()<T>()`.
template <typename Launch>
int dispatch_type(DType dtype, const Launch& launch) {
    switch (dtype) {
        case DType::kFloat32:
            return launch.template operator()<float>();
        case DType::kFloat64:
            return launch.template operator()<double>();
        case DType::kFloat16:
            return launch.template operator()<__half>();
        case DType::kBFloat16:
            return launch.template operator()<__nv_bfloat16>();
    }
    return cudaErrorInvalidValue;
}

// Calls `launch.operator()<T, V, kMode>()`.
template <typename Launch>
int dispatch(DType dtype, const Plan& plan, const Launch& launch) {
    if (!countable(plan)) return cudaErrorInvalidValue;
    const auto with_mode = [&]<typename T, int V>() {
        switch (plan.weight_mode) {
            case WeightMode::kOneRow:
                return launch.template operator()<T, V, WeightMode::kOneRow>();
            case WeightMode::kRows:
                return launch.template operator()<T, V, WeightMode::kRows>();
            case WeightMode::kGenerated:
                return launch.template operator()<T, V, WeightMode::kGenerated>();
            case WeightMode::kGlobal:  // always on the scalar path
                return launch.template operator()<T, 1, WeightMode::kGlobal>();
        }
        return static_cast<int>(cudaErrorInvalidValue);
    };
    return dispatch_type(dtype, [&]<typename T>() {
        constexpr int kWidth = vector_width(sizeof(AccumulatorOf<T>));
        return plan.vector == 1 ? with_mode.template operator()<T, 1>()
                                : with_mode.template operator()<T, kWidth>();
    });
}

}  // namespace wpnode::cuda
