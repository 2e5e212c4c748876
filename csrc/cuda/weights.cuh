// Weights inside a kernel: shared by all segments, one row per segment, or generated from times.
//
// The linear product rule integrates L_i * phi^(d) over the two cells next to node i with the
// Gauss-Legendre rule that is exact for it. 1 - s^2 is the product of the distances to both ends of
// the segment, sums of positive numbers: nothing cancels (see core/weights.h).
#pragma once

#include <cstdint>

#include "cuda/tile.cuh"

namespace wpnode::cuda {

inline constexpr int kMaxPower = 64;

// Nodes of a rule on [0, 1] up to the middle one; the others mirror them (xi and eta swap).
struct HalfRule {
    int nodes;  // p + 1
    int power;  // p
    double xi[(kMaxPower + 2) / 2];
    double eta[(kMaxPower + 2) / 2];
    double weight[(kMaxPower + 2) / 2];
};

// Host: the rule for phi = (1 - s^2)^p.
HalfRule make_rule(int p);

struct SharedTimes {
    const double* t;
    __device__ __forceinline__ double operator()(int j) const { return load_shared(t + j); }
};
struct GlobalTimes {
    const double* t;
    __device__ __forceinline__ double operator()(int j) const { return load_global(t + j); }
};
struct UniformTimes {
    double dt;
    __device__ __forceinline__ double operator()(int j) const { return j * dt; }
};

template <typename A>
__device__ __forceinline__ A integer_power(A x, int exponent) {
    A result = 1;
    for (A square = x; exponent > 0; exponent >>= 1, square *= square) {
        if (exponent & 1) result *= square;
    }
    return result;
}

// phi^(d) at the point `left` from one end and `right` from the other, d by the kind.
template <typename A>
__device__ __forceinline__ A test_function(WeightKind kind, int p, A left, A right) {
    const A base = left * right;
    const A s = A(0.5) * (left - right);
    if (kind == WeightKind::kRhs) return integer_power(base, p);
    if (kind == WeightKind::kLhsFirstOrder) return -2 * p * s * integer_power(base, p - 1);
    return 2 * p * ((2 * p - 1) * s * s - 1) * integer_power(base, p - 2);
}

// Integral of shape * phi^(d) over a cell, in units of the cell; the shape is 1 at the cell's left
// end and 0 at its right end, or the reverse.
template <typename A>
__device__ A cell_integral(const HalfRule& rule, WeightKind kind, bool rising, A left, A right,
                           A width) {
    A sum = 0;
    for (int n = 0; n < (rule.nodes + 1) / 2; ++n) {
        const A xi = static_cast<A>(rule.xi[n]);
        const A eta = static_cast<A>(rule.eta[n]);
        const A near = test_function(kind, rule.power, left + width * xi, right + width * eta);
        A term = (rising ? xi : eta) * near;
        if (2 * n + 1 < rule.nodes) {
            const A mirrored =
                test_function(kind, rule.power, left + width * eta, right + width * xi);
            term += (rising ? eta : xi) * mirrored;
        }
        sum += static_cast<A>(rule.weight[n]) * term;
    }
    return sum;
}

// Weight of node i of the segment with times t(0), ..., t(ell).
template <typename A, typename Times>
__device__ A product_weight(const HalfRule& rule, WeightKind kind, const Times& t, int ell, int i) {
    const double first = t(0);
    const double last = t(ell);
    const double half = 0.5 * (last - first);
    A sum = 0;
    for (int side = 0; side < 2; ++side) {
        const int j = i - 1 + side;  // the cell between nodes j and j + 1
        if (j < 0 || j >= ell) continue;
        const double from = t(j);
        const double to = t(j + 1);
        const A width = static_cast<A>((to - from) / half);
        sum += width * cell_integral(rule, kind, side == 0, static_cast<A>((from - first) / half),
                                     static_cast<A>((last - to) / half), width);
    }
    if (kind == WeightKind::kRhs) return static_cast<A>(half) * sum;
    if (kind == WeightKind::kLhsSecondOrder) return sum / static_cast<A>(-half);
    return sum;
}

// Where a kernel takes its weights from.
template <typename A>
struct WeightSource {
    const A* values;      // nullptr: generate from times
    const double* times;  // [N]
    bool per_segment;     // one row per segment (always, from times)
    WeightKind kind;      // from times
};

// Weights of one segment.
template <typename A, WeightMode kMode>
struct WeightRow {
    const A* w;
    __device__ __forceinline__ A operator()(int i) const {
        return kMode == WeightMode::kGlobal ? load_global(w + i) : load_shared(w + i);
    }
};

// Weights of a batch of segments.
template <typename A, WeightMode kMode>
struct BatchWeights {
    const A* base;  // row of the batch's first segment
    int stride;     // 0: all segments share one row

    // `memory`: the weights in shared memory, if there.
    __device__ BatchWeights(const WeightSource<A>& source, const Shape& shape, const Tiling& tiling,
                            int k, const unsigned char* memory) {
        if (kMode == WeightMode::kGlobal) {
            stride = source.per_segment ? shape.ell + 1 : 0;
            base = source.values + static_cast<std::int64_t>(k) * stride;
        } else {
            base = reinterpret_cast<const A*>(memory + tiling.weights_at);
            stride = kMode == WeightMode::kOneRow ? 0 : tiling.weight_stride;
        }
    }
    __device__ __forceinline__ WeightRow<A, kMode> row(int j) const {
        if (kMode == WeightMode::kOneRow) return {base};
        if (kMode == WeightMode::kGlobal) return {base + static_cast<std::int64_t>(j) * stride};
        return {base + j * stride};
    }
};

// Puts the weights all segments share into shared memory; a barrier must follow.
template <WeightMode kMode, typename A>
__device__ void fill_one_row(const WeightSource<A>& source, const Shape& shape,
                             const Tiling& tiling, unsigned char* memory) {
    if (kMode != WeightMode::kOneRow) return;
    auto* weights = reinterpret_cast<A*>(memory + tiling.weights_at);
    for (int i = static_cast<int>(threadIdx.x); i <= shape.ell; i += static_cast<int>(blockDim.x)) {
        store_shared(weights + i, load_global(source.values + i));
    }
}

// Times of the samples begin .. end - 1 in shared memory; none if they are equal.
struct StagedTimes {
    const double* t;
    int begin;
    int end;
};

// Puts the rows of segments k .. k + count - 1 into shared memory; a barrier must follow.
template <WeightMode kMode, typename A>
__device__ void fill_rows(const WeightSource<A>& source, const HalfRule& rule, const Shape& shape,
                          const Tiling& tiling, int k, int count, const StagedTimes& staged,
                          unsigned char* memory) {
    if (kMode != WeightMode::kRows && kMode != WeightMode::kGenerated) return;
    auto* weights = reinterpret_cast<A*>(memory + tiling.weights_at);
    const int nodes = shape.ell + 1;
    for (int e = static_cast<int>(threadIdx.x); e < count * nodes;
         e += static_cast<int>(blockDim.x)) {
        const int row = shape.by_nodes.divide(e);
        const int i = e - row * nodes;
        A weight;
        if (kMode == WeightMode::kRows) {
            weight = load_global(source.values + static_cast<std::int64_t>(k) * nodes + e);
        } else {
            const int start = shape.start(k + row);
            if (!shape.inside(start)) {
                weight = kNan<A>;
            } else if (start >= staged.begin && start + shape.ell < staged.end) {
                weight =
                    product_weight<A>(rule, source.kind,
                                      SharedTimes{staged.t + (start - staged.begin)}, shape.ell, i);
            } else {
                weight = product_weight<A>(rule, source.kind, GlobalTimes{source.times + start},
                                           shape.ell, i);
            }
        }
        store_shared(weights + row * tiling.weight_stride + i, weight);
    }
}

}  // namespace wpnode::cuda
