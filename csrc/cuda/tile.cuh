// Where a block and a thread stand: shape of the problem, tile of the block, lane of the thread.
#pragma once

#include <cstdint>

#include "cuda/divide.cuh"
#include "cuda/plan.h"
#include "cuda/types.cuh"

namespace wpnode::cuda {

// The part of Problem a kernel needs. Samples, segments and channels are counted in int (the
// launchers refuse more); offsets of elements are 64-bit.
struct Shape {
    int samples;
    int state;
    int segments;
    int ell;
    int q;
    const std::int64_t* starts;
    Divider by_q;
    Divider by_nodes;  // ell + 1

    // Starts outside the series come out as -1 or `samples`: outside, and still in order.
    __device__ __forceinline__ int start(int k) const {
        if (!starts) return k * q;
        const std::int64_t start = load_global(starts + k);
        return start < 0 ? -1 : start > samples ? samples : static_cast<int>(start);
    }
    __device__ __forceinline__ bool inside(int start) const {
        return start >= 0 && start < samples - ell;
    }
    // First segment that starts at `sample` or later.
    __device__ int first_from(int sample) const {
        if (!starts) {
            const int k = sample <= 0 ? 0 : by_q.divide(sample - 1) + 1;
            return k < segments ? k : segments;
        }
        int low = 0;
        int high = segments;
        while (low < high) {
            const int middle = low + (high - low) / 2;
            if (start(middle) < sample) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }
};

inline Shape shape_of(const Problem& problem) {
    // q may be larger than an int, but only if there is at most one segment.
    const std::int64_t q = problem.segments > 1 && !problem.starts ? problem.q : 1;
    return {static_cast<int>(problem.samples),
            static_cast<int>(problem.state),
            static_cast<int>(problem.segments),
            static_cast<int>(problem.ell),
            static_cast<int>(q),
            problem.starts,
            Divider(q),
            Divider(problem.ell + 1)};
}

// A kernel's share of the plan.
struct Grid {
    Tiling tiling;
    unsigned tiles;
    Divider by_channel_tiles;
    Divider by_time_tiles;

    explicit Grid(const Plan& plan)
        : tiling(plan.tiling),
          tiles(static_cast<unsigned>(plan.tiles)),
          by_channel_tiles(plan.tiling.channel_tiles),
          by_time_tiles(plan.tiling.time_tiles) {}
};

// A thread's lane (which vector of the row) and group (which row); idle threads only keep barriers.
struct Seat {
    int lane;
    int group;
    bool seated;

    __device__ explicit Seat(const Tiling& tiling)
        : lane(static_cast<int>(threadIdx.x) % tiling.lanes),
          group(static_cast<int>(threadIdx.x) / tiling.lanes),
          seated(group < tiling.groups) {}
};

// The part of the output a block works on.
struct Tile {
    int time;               // index of the stretch of time
    int channel;            // first channel
    std::int64_t series;    // offset of the first sample of its series [B, N, D]
    std::int64_t residual;  // offset of the first segment of its residuals [B, K, D]

    __device__ Tile(const Shape& shape, const Grid& grid, int vector, unsigned index) {
        const int rest = grid.by_channel_tiles.divide(static_cast<int>(index));
        const std::int64_t batch = grid.by_time_tiles.divide(rest);
        channel =
            grid.by_channel_tiles.remainder(static_cast<int>(index)) * grid.tiling.lanes * vector;
        time = grid.by_time_tiles.remainder(rest);
        series = batch * shape.samples * shape.state + channel;
        residual = batch * shape.segments * shape.state + channel;
    }

    // Channels from the tile's first on; none for an idle thread.
    __device__ __forceinline__ int channels(const Shape& shape, const Seat& seat) const {
        return seat.seated ? shape.state - channel : 0;
    }
};

// Starts of a batch of segments, relative to a sample near by.
struct LocalStarts {
    const Shape& shape;
    const int* listed;  // shared memory; nullptr if uniform
    int first;
    int count;

    __device__ __forceinline__ int at(int j) const {
        return listed ? load_shared(listed + j) : first + j * shape.q;
    }
    // First segment of the batch that starts at `sample` or later.
    __device__ __forceinline__ int first_from(int sample) const {
        if (!listed) {
            const int distance = sample - first;
            const int j = distance <= 0 ? 0 : shape.by_q.divide(distance - 1) + 1;
            return j < count ? j : count;
        }
        int low = 0;
        int high = count;
        while (low < high) {
            const int middle = (low + high) / 2;
            if (load_shared(listed + middle) < sample) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }
};

}  // namespace wpnode::cuda
