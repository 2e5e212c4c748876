// The adjoint x = corr_t(y, w).
//
// A block takes a tile of channels and a stretch of samples, and goes through the residual rows of
// the segments that overlap it, a batch at a time:
//     read  (1 + ell / stretch) * K * D elements,  write N * D elements.
// Samples no segment covers get 0, and NaN from segments that leave the series.

#include "cuda/adjoint.cuh"
#include "cuda/dispatch.h"

namespace wpnode::cuda {
namespace {

template <typename T, int V, WeightMode kMode>
__global__ void __launch_bounds__(kMaxThreads, min_threads(kMode) / kMaxThreads)
    adjoint_kernel(const __grid_constant__ Shape shape, const __grid_constant__ Grid grid,
                   const WeightSource<AccumulatorOf<T>> source,
                   const __grid_constant__ HalfRule rule, const T* __restrict__ y,
                   T* __restrict__ x) {
    using A = AccumulatorOf<T>;
    constexpr int kRows = kRowsPerThread<Purpose::kAdjoint, T, V>;
    WPNODE_DYNAMIC_SHARED(memory);
    const Tiling& tiling = grid.tiling;
    const Seat seat(tiling);
    const SampleRows<V> samples(tiling, seat);
    ResidualTile<T, V> rows(memory + tiling.residual_at, tiling, seat);
    fill_one_row<kMode>(source, shape, tiling, memory);
    for (unsigned index = blockIdx.x; index < grid.tiles; index += gridDim.x) {
        const Tile tile(shape, grid, V, index);
        const bool active = seat.seated && tile.channel + seat.lane * V < shape.state;
        const int last = min(tile.time * tiling.time_length + tiling.time_length, shape.samples);
        for (int origin = tile.time * tiling.time_length; origin < last; origin += tiling.stretch) {
            const int length = min(tiling.stretch, last - origin);
            const int stop = shape.first_from(origin + length);
            Values<T, V> sums[kRows];
            for (int k = shape.first_from(origin - shape.ell), count; k < stop; k += count) {
                count = min(stop - k, tiling.batch_segments);
                __syncthreads();  // readers of the previous batch
                const LocalStarts starts = local_starts(shape, tiling, k, count, origin, memory);
                fill_rows<kMode>(source, rule, shape, tiling, k, count, StagedTimes{nullptr, 0, 0},
                                 memory);
                if (active) {
                    for (int j = seat.group; j < count; j += tiling.groups) {
                        const std::int64_t at = tile.residual + seat.lane * V +
                                                static_cast<std::int64_t>(k + j) * shape.state;
                        Values<T, V> row;
                        row.add(load_global(as_packs<T, V>(y + at)));
                        if (!shape.inside(shape.start(k + j))) row.fill(kNan<A>);
                        rows.store(j, row);
                    }
                }
                __syncthreads();
                if (!active) continue;
                const BatchWeights<A, kMode> weights(source, shape, tiling, k, memory);
                gather(rows, weights, starts, samples, shape.ell, sums);
            }
            if (!active) continue;
#pragma unroll
            for (int m = 0; m < kRows; ++m) {
                const int sample = samples.first + m * samples.step;
                if (m >= samples.count || sample >= length) break;
                const std::int64_t at = tile.series + seat.lane * V +
                                        static_cast<std::int64_t>(origin + sample) * shape.state;
                store_global(as_packs<T, V>(x + at), sums[m].narrowed(A(1)));
            }
        }
    }
}

}  // namespace

int launch_corr_t(const Problem& problem, const Weights& weights, const void* y, void* x,
                  void* stream) {
    if (const int error = check(problem, &weights)) return error;
    if (problem.batch == 0 || problem.samples == 0 || problem.state == 0) return cudaSuccess;
    const Plan plan = make_plan(problem, weights, Purpose::kAdjoint, aligned_to_vectors(x, y));
    const HalfRule rule = make_rule(weights);
    return dispatch(problem.dtype, plan, [&]<typename T, int V, WeightMode kMode>() {
        auto kernel = &adjoint_kernel<T, V, kMode>;
        WPNODE_LAUNCH(kernel, grid_for(problem, plan.tiles), dim3(plan.threads), plan.shared_bytes,
                      stream, shape_of(problem), Grid(plan), weight_source<T>(weights), rule,
                      static_cast<const T*>(y), static_cast<T*>(x));
        return static_cast<int>(cudaGetLastError());
    });
}

}  // namespace wpnode::cuda
