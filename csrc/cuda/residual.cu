// Residuals y = corr(x, w), and the loss sum (lhs + corr(f, w))^2.
//
// A block takes one tile of channels of one series and walks along its segments, a batch at a time.
// The rows a batch needs stand in a ring in shared memory (plan.h), so a block reads each row of
// its stretch once, plus the ell rows by which stretches overlap:
//     read  (1 + ell / (time_length * q)) * N * D elements, and K * D of lhs for the loss
//     write K * D elements (corr), or 8 bytes a block (loss).
// A large state (D = 18432) gives hundreds of channel tiles of 128 bytes and long stretches; a
// small one (D = 3) gives a single tile of contiguous memory and parallelism along time. The loss
// leaves one sum per tile in the workspace; finish.cu adds them in order.

#include "cuda/dispatch.h"
#include "cuda/finish.h"
#include "cuda/reduce.cuh"
#include "cuda/residual.cuh"

namespace wpnode::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
struct Series {
    const T* x;                   // [B, N, D]
    const AccumulatorOf<T>* lhs;  // [B, K, D], loss only
    T* y;                         // [B, K, D], corr only
};

// Residuals if `partial` is nullptr, else the loss.
template <typename T, int V, WeightMode kMode>
__global__ void __launch_bounds__(kThreads, min_threads(kMode) / kThreads)
    residual_kernel(const __grid_constant__ Shape shape, const __grid_constant__ Grid grid,
                    const WeightSource<AccumulatorOf<T>> source,
                    const __grid_constant__ HalfRule rule, const Series<T> series,
                    double* __restrict__ partial) {
    using A = AccumulatorOf<T>;
    WPNODE_DYNAMIC_SHARED(memory);
    const Tiling& tiling = grid.tiling;
    const Seat seat(tiling);
    const SegmentPair<V> pair(tiling, seat);
    fill_one_row<kMode>(source, shape, tiling, memory);
    for (unsigned index = blockIdx.x; index < grid.tiles; index += gridDim.x) {
        const Tile tile(shape, grid, V, index);
        const int channels = tile.channels(shape, seat);
        const bool active = seat.lane * V < channels;
        Ring<T, V, kMode> ring(memory, tiling, seat, series.x + tile.series, channels);
        const int begin = tile.time * tiling.time_length;
        const int stop = begin + min(tiling.time_length, shape.segments - begin);
        A total = 0;
        for (int k = begin, count; k < stop; k += count) {
            const Batch batch(shape, tiling, k, stop);
            count = batch.count;
            stage(shape, tiling, source, rule, batch, ring, memory);
            if (!active || pair.first >= count) continue;
            const BatchWeights<A, kMode> weights(source, shape, tiling, k, memory);
            Values<T, V> residual[2];
            pair_of_residuals(shape, tiling, ring, weights, batch, pair, residual[0], residual[1]);
            const int segment[2] = {pair.first, pair.second};
#pragma unroll
            for (int m = 0; m < 2; ++m) {
                if (segment[m] >= count) continue;
                const std::int64_t at = tile.residual + seat.lane * V +
                                        static_cast<std::int64_t>(k + segment[m]) * shape.state;
                if (partial) {
                    residual[m].add(load_global(as_packs<A, V>(series.lhs + at)));
                    total += residual[m].sum_of_squares();
                } else {
                    store_global(as_packs<T, V>(series.y + at), residual[m].narrowed(A(1)));
                }
            }
        }
        if (partial) {
            const double sum =
                block_sum(total, reinterpret_cast<double*>(memory + tiling.scratch_at));
            if (threadIdx.x == 0) store_global(partial + index, sum);
        }
    }
}

int launch(const Problem& problem, const Weights& weights, const Plan& plan, const void* x,
           const void* lhs, void* y, void* partial, void* stream) {
    const HalfRule rule = make_rule(weights);
    return dispatch(problem.dtype, plan, [&]<typename T, int V, WeightMode kMode>() {
        auto kernel = &residual_kernel<T, V, kMode>;
        const Series<T> series{static_cast<const T*>(x), static_cast<const AccumulatorOf<T>*>(lhs),
                               static_cast<T*>(y)};
        WPNODE_LAUNCH(kernel, grid_for(problem, plan.tiles), dim3(plan.threads), plan.shared_bytes,
                      stream, shape_of(problem), Grid(plan), weight_source<T>(weights), rule,
                      series, static_cast<double*>(partial));
        return static_cast<int>(cudaGetLastError());
    });
}

}  // namespace

int launch_corr(const Problem& problem, const Weights& weights, const void* x, void* y,
                void* stream) {
    if (const int error = check(problem, &weights)) return error;
    if (problem.batch == 0 || problem.segments == 0 || problem.state == 0) return cudaSuccess;
    const Plan plan = make_plan(problem, weights, Purpose::kResidual, aligned_to_vectors(x, y));
    return launch(problem, weights, plan, x, nullptr, y, nullptr, stream);
}

std::size_t weak_loss_workspace(const Problem& problem, const Weights& weights) {
    return partial_bytes(problem, weights, Purpose::kResidual);
}

int launch_weak_loss(const Problem& problem, const Weights& weights, const void* lhs, const void* f,
                     double scale, void* loss, void* workspace, void* stream) {
    if (const int error = check(problem, &weights)) return error;
    std::int64_t partials = 0;
    if (problem.batch > 0 && problem.segments > 0 && problem.state > 0) {
        const Plan plan =
            make_plan(problem, weights, Purpose::kResidual, aligned_to_vectors(lhs, f));
        partials = plan.tiles;
        if (const int error = launch(problem, weights, plan, f, lhs, nullptr, workspace, stream)) {
            return error;
        }
    }
    return launch_finish(problem.dtype, workspace, partials, 1, scale, loss, stream);
}

}  // namespace wpnode::cuda
