// The weight gradient corr_w: sums of y[b, k, d] * x[b, s_k + i, d].
//
// One row of weights for all segments: a block walks along the segments of its tile as in
// residual.cu, with the rows of x in the ring and those of y in shared memory:
//     read  (1 + ell / (time_length * q)) * N * D and K * D elements,  write 8 (ell + 1) bytes a
//     block.
// A group of threads owns kNodesPerThread neighbouring nodes; if there are fewer nodes than groups
// can own, groups share the segments instead. More nodes than groups can own take further blocks.
//
// One row per segment: a warp takes a few nodes of one segment and runs over batch and channels, or
// a thread takes one node if the state is small. Warps of a block share the rows of a segment in
// cache:
//     read  K * (ell + 1) * D elements of x, most of them again from cache,  write K * (ell + 1)
//     values.

#include "core/sizes.h"
#include "cuda/adjoint.cuh"
#include "cuda/dispatch.h"
#include "cuda/finish.h"

namespace wpnode::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kMaxGridY = 65535;

template <typename T, int V, WeightMode kMode>
__global__ void __launch_bounds__(kThreads, min_threads(kMode) / kThreads)
    shared_kernel(const __grid_constant__ Shape shape, const __grid_constant__ Grid grid,
                  const T* __restrict__ y, const T* __restrict__ x, double* __restrict__ partial) {
    using A = AccumulatorOf<T>;
    WPNODE_DYNAMIC_SHARED(memory);
    const Tiling& tiling = grid.tiling;
    const Seat seat(tiling);
    ResidualTile<T, V> rows(memory + tiling.residual_at, tiling, seat);
    auto* sums = reinterpret_cast<double*>(memory);
    const int nodes = shape.ell + 1;
    const int most_nodes = tiling.groups * kNodesPerThread;
    for (int first_node = static_cast<int>(blockIdx.y) * most_nodes; first_node < nodes;
         first_node += static_cast<int>(gridDim.y) * most_nodes) {
        const int own_nodes = min(most_nodes, nodes - first_node);
        const int node_groups = (own_nodes + kNodesPerThread - 1) / kNodesPerThread;
        const int slices = tiling.groups / node_groups;
        const int slice = seat.group / node_groups;
        const int node = first_node + seat.group % node_groups * kNodesPerThread;
        const int count_nodes = min(kNodesPerThread, nodes - node);
        for (unsigned index = blockIdx.x; index < grid.tiles; index += gridDim.x) {
            const Tile tile(shape, grid, V, index);
            const int channels = tile.channels(shape, seat);
            const bool active = seat.lane * V < channels;
            Ring<T, V, kMode> ring(memory, tiling, seat, x + tile.series, channels);
            const int begin = tile.time * tiling.time_length;
            const int stop = begin + min(tiling.time_length, shape.segments - begin);
            double total[kNodesPerThread] = {};
            for (int k = begin, count; k < stop; k += count) {
                const Batch batch(shape, tiling, k, stop);
                count = batch.count;
                __syncthreads();  // readers of the previous batch
                ring.load(shape, tiling, batch);
                for (int j = seat.group; active && j < count; j += tiling.groups) {
                    const std::int64_t at = tile.residual + seat.lane * V +
                                            static_cast<std::int64_t>(k + j) * shape.state;
                    Values<T, V> row;
                    row.add(load_global(as_packs<T, V>(y + at)));
                    rows.store(j, row);
                }
                __syncthreads();
                if (!active || slice >= slices) continue;
                A sum[kNodesPerThread] = {};
                for (int j = slice; j < count; j += slices) {
                    const int start = shape.start(k + j);
                    const bool served = batch.serves(shape, start);
                    const Values<T, V> factor = rows.load(j);
                    auto next =
                        ring.rows(shape, tiling, batch, j, served ? start : batch.begin, node);
#pragma unroll
                    for (int m = 0; m < kNodesPerThread; ++m) {
                        if (m >= count_nodes) break;
                        sum[m] += served ? factor.dot(next.next()) : kNan<A>;
                    }
                }
#pragma unroll
                for (int m = 0; m < kNodesPerThread; ++m) total[m] += sum[m];
            }
            // Lanes of the vector path add up inside their warp; the rest goes through shared
            // memory.
            const int lanes = V > 1 ? 1 : tiling.lanes;
            for (int delta = V > 1 ? tiling.lanes / 2 : 0; delta > 0; delta /= 2) {
#pragma unroll
                for (int m = 0; m < kNodesPerThread; ++m) {
                    total[m] += __shfl_down_sync(kAllLanes, total[m], delta);
                }
            }
            __syncthreads();  // readers of the ring, which the sums replace
#pragma unroll
            for (int m = 0; m < kNodesPerThread; ++m) {
                if (!seat.seated || seat.lane >= lanes) break;
                const int slot = seat.lane * tiling.groups + seat.group;
                store_shared(sums + slot * kNodesPerThread + m, total[m]);
            }
            __syncthreads();
            for (int n = static_cast<int>(threadIdx.x); n < own_nodes; n += kThreads) {
                double sum = 0.0;
                for (int lane = 0; lane < lanes; ++lane) {
                    for (int s = 0; s < slices; ++s) {
                        const int slot = lane * tiling.groups + s * node_groups;
                        sum += load_shared(sums + slot * kNodesPerThread + n);
                    }
                }
                store_global(partial + static_cast<std::int64_t>(index) * nodes + first_node + n,
                             sum);
            }
        }
    }
}

// Rows of weights of their own: kLanes threads per kNodes nodes of a segment.
template <typename T, int kLanes, int kNodes>
__global__ void __launch_bounds__(kThreads)
    per_segment_kernel(const __grid_constant__ Shape shape, const std::int64_t batch,
                       const std::int64_t outputs, const T* __restrict__ y, const T* __restrict__ x,
                       AccumulatorOf<T>* __restrict__ gw) {
    using A = AccumulatorOf<T>;
    const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads / kLanes;
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    const int chunks = (shape.ell + kNodes) / kNodes;  // of kNodes nodes each
    for (std::int64_t output = thread / kLanes; output < outputs; output += stride) {
        const int k = static_cast<int>(output / chunks);
        const int node = static_cast<int>(output % chunks) * kNodes;
        const int count = min(kNodes, shape.ell + 1 - node);
        const int start = shape.start(k);
        const bool inside = shape.inside(start);
        double sum[kNodes] = {};
        for (std::int64_t b = 0; inside && b < batch; ++b) {
            const T* factor = y + (b * shape.segments + k) * shape.state;
            const T* row = x + (b * shape.samples + start + node) * shape.state;
            A part[kNodes] = {};
            for (int d = lane; d < shape.state; d += kLanes) {
                const A value = widen(load_global(factor + d));
#pragma unroll
                for (int m = 0; m < kNodes; ++m) {
                    if (m >= count) break;
                    const std::int64_t at = static_cast<std::int64_t>(m) * shape.state + d;
                    part[m] += value * widen(load_global(row + at));
                }
            }
#pragma unroll
            for (int m = 0; m < kNodes; ++m) sum[m] += part[m];
        }
#pragma unroll
        for (int m = 0; m < kNodes; ++m) {
            for (int delta = kLanes / 2; delta > 0; delta /= 2) {
                sum[m] += __shfl_down_sync(kAllLanes, sum[m], delta);
            }
            if (lane == 0 && m < count) {
                const std::int64_t at = static_cast<std::int64_t>(k) * (shape.ell + 1) + node + m;
                store_global(gw + at, inside ? static_cast<A>(sum[m]) : kNan<A>);
            }
        }
    }
}

template <typename T, int kLanes, int kNodes>
int launch_per_segment(const Problem& problem, const void* y, const void* x, void* gw,
                       void* stream) {
    auto kernel = &per_segment_kernel<T, kLanes, kNodes>;
    const std::int64_t outputs = problem.segments * ((problem.ell + kNodes) / kNodes);
    const std::int64_t blocks = (outputs * kLanes + kThreads - 1) / kThreads;
    WPNODE_LAUNCH(kernel, grid_for(problem, blocks), dim3(kThreads), 0, stream, shape_of(problem),
                  problem.batch, outputs, static_cast<const T*>(y), static_cast<const T*>(x),
                  static_cast<AccumulatorOf<T>*>(gw));
    return static_cast<int>(cudaGetLastError());
}

Plan shared_plan(const Problem& problem, bool aligned) {
    return make_plan(problem, Weights{}, Purpose::kWeightGradient, aligned);
}

}  // namespace

std::size_t corr_w_workspace(const Problem& problem, bool per_segment) {
    const std::size_t bytes = partial_bytes(problem, Weights{}, Purpose::kWeightGradient);
    if (per_segment || bytes == 0) return 0;
    // A size beyond any memory saturates: the allocator refuses it, or the launcher refuses the
    // number of tiles.
    return static_cast<std::size_t>(
        core::count_elements({static_cast<std::int64_t>(bytes), problem.ell + 1}));
}

int launch_corr_w(const Problem& problem, bool per_segment, const void* y, const void* x, void* gw,
                  void* workspace, void* stream) {
    if (const int error = check(problem, nullptr)) return error;
    if (per_segment) {
        if (problem.segments == 0) return cudaSuccess;
        if (!core::is_countable({problem.segments, problem.ell + 1})) return cudaErrorInvalidValue;
        return dispatch_type(problem.dtype, [&]<typename T>() {
            return problem.state < 32 ? launch_per_segment<T, 1, 1>(problem, y, x, gw, stream)
                                      : launch_per_segment<T, 32, 4>(problem, y, x, gw, stream);
        });
    }
    std::int64_t partials = 0;
    if (problem.batch > 0 && problem.segments > 0 && problem.state > 0) {
        const Plan plan = shared_plan(problem, aligned_to_vectors(x, y));
        if (!countable(plan)) return cudaErrorInvalidValue;
        partials = plan.tiles;
        dim3 blocks = grid_for(problem, plan.tiles);
        const std::int64_t own_nodes = plan.tiling.groups * kNodesPerThread;
        blocks.y = static_cast<unsigned>(
            std::min<std::int64_t>((problem.ell + own_nodes) / own_nodes, kMaxGridY));
        const int error = dispatch_type(problem.dtype, [&]<typename T>() {
            const auto launch = [&](auto kernel) {
                WPNODE_LAUNCH(kernel, blocks, dim3(kThreads), plan.shared_bytes, stream,
                              shape_of(problem), Grid(plan), static_cast<const T*>(y),
                              static_cast<const T*>(x), static_cast<double*>(workspace));
                return static_cast<int>(cudaGetLastError());
            };
            constexpr int kWidth = vector_width(sizeof(AccumulatorOf<T>));
            if (plan.weight_mode == WeightMode::kGlobal) {
                return launch(&shared_kernel<T, 1, WeightMode::kGlobal>);
            }
            return plan.vector == 1 ? launch(&shared_kernel<T, 1, WeightMode::kOneRow>)
                                    : launch(&shared_kernel<T, kWidth, WeightMode::kOneRow>);
        });
        if (error) return error;
    }
    return launch_finish(problem.dtype, workspace, partials, problem.ell + 1, 1.0, gw, stream);
}

}  // namespace wpnode::cuda
