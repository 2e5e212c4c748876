// The loss and its gradient with respect to f in one pass, without the residual in global memory.
//
// A block takes a tile of channels and a time of several stretches, one after the other. It walks
// along the segments that overlap a stretch: a batch of residuals is computed from the ring of rows
// (ring.cuh) into shared memory, then added to the samples of the stretch, which stay in registers.
// The residuals of the ell samples before a stretch are computed once more than needed:
//     read  (1 + 2 ell / time_length) * N * D and (1 + ell / stretch) * K * D elements,
//     write N * D elements and 8 bytes a block.
// Each residual is counted in the loss by the stretch in which its segment starts.

#include "cuda/adjoint.cuh"
#include "cuda/dispatch.h"
#include "cuda/finish.h"
#include "cuda/reduce.cuh"

namespace wpnode::cuda {
namespace {

template <typename T>
struct Series {
    const T* f;                   // [B, N, D]
    const AccumulatorOf<T>* lhs;  // [B, K, D]
    T* grad;                      // [B, N, D]
};

// The tile of the same index, computed again. This kernel has no registers to spare for what a tile
// holds, so it computes that where it needs it. The empty instruction keeps the compiler from
// noticing that the index is the same, and from keeping the first result.
__device__ __forceinline__ Tile tile_again(const Shape& shape, const Grid& grid, int vector,
                                           unsigned index) {
    asm volatile("" : "+r"(index));
    return Tile(shape, grid, vector, index);
}

// Weights are read from global memory where their rows fit nowhere else: those kernels are slow
// anyway, and take the registers they need.
constexpr int min_blocks(WeightMode mode) {
    return mode == WeightMode::kGlobal ? 1 : min_threads(mode) / kMaxThreads;
}

template <typename T, int V, WeightMode kMode>
__global__ void __launch_bounds__(kMaxThreads, min_blocks(kMode))
    loss_gradient_kernel(const __grid_constant__ Shape shape, const __grid_constant__ Grid grid,
                         const WeightSource<AccumulatorOf<T>> source,
                         const __grid_constant__ HalfRule rule, const Series<T> series,
                         const AccumulatorOf<T> factor, double* __restrict__ partial) {
    using A = AccumulatorOf<T>;
    constexpr int kRows = kRowsPerThread<Purpose::kLossGradient, T, V>;
    WPNODE_DYNAMIC_SHARED(memory);
    const Tiling& tiling = grid.tiling;
    const Seat seat(tiling);
    const SegmentPair<V> pair(tiling, seat);
    const SampleRows<V> samples(tiling, seat);
    ResidualTile<T, V> rows(memory + tiling.residual_at, tiling, seat);
    fill_one_row<kMode>(source, shape, tiling, memory);
    const auto end_of = [&](unsigned index) {  // of the tile, in samples
        const int after = tile_again(shape, grid, V, index).time + 1;
        return min(after * tiling.time_length, shape.samples);
    };
    for (unsigned index = blockIdx.x; index < grid.tiles; index += gridDim.x) {
        const Tile tile(shape, grid, V, index);
        const int channels = tile.channels(shape, seat);
        const bool active = seat.lane * V < channels;
        Ring<T, V, kMode> ring(memory, tiling, seat, series.f + tile.series, channels);
        A total = 0;
        for (int origin = tile.time * tiling.time_length; origin < end_of(index);
             origin += tiling.stretch) {
            const int end = min(origin + tiling.stretch, end_of(index));
            // The first and the last stretch also count segments that start outside the series.
            const int begin = origin == 0 ? 0 : shape.first_from(origin - shape.ell);
            const int stop = end == shape.samples ? shape.segments : shape.first_from(end);
            Values<T, V> sums[kRows];
            for (int k = begin, count; k < stop; k += count) {
                const Batch batch(shape, tiling, k, stop);
                count = batch.count;
                stage(shape, tiling, source, rule, batch, ring, memory);
                const LocalStarts starts = local_starts(shape, tiling, k, count, origin, memory);
                const BatchWeights<A, kMode> weights(source, shape, tiling, k, memory);
                if (active && pair.first < count) {
                    const std::int64_t offset =
                        tile_again(shape, grid, V, index).residual + seat.lane * V;
                    Values<T, V> residual[2];
                    pair_of_residuals(shape, tiling, ring, weights, batch, pair, residual[0],
                                      residual[1]);
                    const int segment[2] = {pair.first, pair.second};
#pragma unroll
                    for (int m = 0; m < 2; ++m) {
                        if (segment[m] >= count) continue;
                        const std::int64_t at =
                            offset + static_cast<std::int64_t>(k + segment[m]) * shape.state;
                        residual[m].add(load_global(as_packs<A, V>(series.lhs + at)));
                        rows.store(segment[m], residual[m]);
                        if (origin == 0 || shape.start(k + segment[m]) >= origin) {
                            total += residual[m].sum_of_squares();
                        }
                    }
                }
                __syncthreads();
                if (active) gather(rows, weights, starts, samples, shape.ell, sums);
            }
            if (!active) continue;
            const Tile here = tile_again(shape, grid, V, index);
            const int length = min(tiling.stretch, end_of(index) - origin);
#pragma unroll
            for (int m = 0; m < kRows; ++m) {
                const int sample = samples.first + m * samples.step;
                if (m >= samples.count || sample >= length) break;
                const std::int64_t at = here.series + seat.lane * V +
                                        static_cast<std::int64_t>(origin + sample) * shape.state;
                store_global(as_packs<T, V>(series.grad + at), sums[m].narrowed(factor));
            }
        }
        const double sum = block_sum(total, reinterpret_cast<double*>(memory + tiling.scratch_at));
        if (threadIdx.x == 0) store_global(partial + index, sum);
    }
}

}  // namespace

std::size_t weak_loss_grad_workspace(const Problem& problem, const Weights& weights) {
    return problem.samples > 0 ? partial_bytes(problem, weights, Purpose::kLossGradient)
                               : weak_loss_workspace(problem, weights);
}

int launch_weak_loss_grad(const Problem& problem, const Weights& weights, const void* lhs,
                          const void* f, double scale, void* loss, void* grad, void* workspace,
                          void* stream) {
    if (const int error = check(problem, &weights)) return error;
    if (problem.samples == 0) {  // no gradient; every listed start lies outside: the loss is NaN
        return launch_weak_loss(problem, weights, lhs, f, scale, loss, workspace, stream);
    }
    std::int64_t partials = 0;
    if (problem.batch > 0 && problem.state > 0) {
        const Plan plan =
            make_plan(problem, weights, Purpose::kLossGradient, aligned_to_vectors(lhs, f, grad));
        const HalfRule rule = make_rule(weights);
        partials = plan.tiles;
        const int error = dispatch(problem.dtype, plan, [&]<typename T, int V, WeightMode kMode>() {
            auto kernel = &loss_gradient_kernel<T, V, kMode>;
            const Series<T> series{static_cast<const T*>(f),
                                   static_cast<const AccumulatorOf<T>*>(lhs),
                                   static_cast<T*>(grad)};
            WPNODE_LAUNCH(
                kernel, grid_for(problem, plan.tiles), dim3(plan.threads), plan.shared_bytes,
                stream, shape_of(problem), Grid(plan), weight_source<T>(weights), rule, series,
                static_cast<AccumulatorOf<T>>(2.0 * scale), static_cast<double*>(workspace));
            return static_cast<int>(cudaGetLastError());
        });
        if (error) return error;
    }
    return launch_finish(problem.dtype, workspace, partials, 1, scale, loss, stream);
}

}  // namespace wpnode::cuda
