// Chooses how a problem is cut into blocks. Host code; depends on sizes and alignment only, never
// on the device, so that results are the same on all.
//
// A block works on `lanes * vector` channels and a stretch of time. Its threads form `groups` of
// `lanes`: the lanes of a group share a row (one sample or one segment), one vector each. Rows of
// 128 bytes are whole sectors in global memory, and all 32 banks in shared memory, hence no
// conflict wherever the groups of a warp stand. Where vectors are not possible (rows that are no
// multiple of one, unaligned pointers) or a row is short (at most 32 elements and less than 128
// bytes), a lane is one element and a group is one row of up to 32 elements.
//
// Rows of the series live in a ring in shared memory: a block that walks along time loads every row
// once (ring.cuh), 16 bytes at a time wherever rows are multiples of that, short ones included.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/launchers.h"

namespace wpnode::cuda {

enum class Purpose { kResidual, kAdjoint, kLossGradient, kWeightGradient };

// Where a kernel finds its weights.
enum class WeightMode {
    kOneRow,     // all segments share a row in shared memory
    kRows,       // a row per segment of the batch in shared memory
    kGenerated,  // the same rows, generated from times
    kGlobal,     // read from global memory: rows too long for shared memory
};

inline constexpr int kCopyBytes = 16;
// Elements a lane works on at once on the vector path: 16 bytes of sums, which is 16 bytes of
// float32 or float64 storage and 8 bytes of 16-bit storage. Twice as many would take twice the
// registers.
constexpr int vector_width(int accumulator_bytes) { return kCopyBytes / accumulator_bytes; }
// Rows of a vector tile.
inline constexpr int kRowBytes = 128;

// Samples a thread of the adjoint keeps in registers, `row_bytes` of sums each.
constexpr int rows_per_thread(Purpose purpose, int row_bytes) {
    const int rows = (purpose == Purpose::kLossGradient ? 48 : 96) / row_bytes;
    return rows < 8 ? rows : 8;
}
// Nodes a thread of the weight gradient keeps in registers.
inline constexpr int kNodesPerThread = 4;
inline constexpr int kMaxThreads = 512;
// Threads a multiprocessor of any kind should hold: half of the most it can. Kernels that generate
// weights need the registers of twice as many.
constexpr int min_threads(WeightMode mode) { return mode == WeightMode::kGenerated ? 512 : 1024; }

// The part of the plan that a kernel reads.
struct Tiling {
    int lanes;
    int groups;
    int batch_segments;   // segments worked on between two barriers
    int ring_rows;        // rows of the series in shared memory; 0: none
    int packed_segments;  // segments whose rows fit one after the other
    int rows_per_group;   // adjoint: samples per group, at most rows_per_thread
    int weight_stride;    // between the rows of per-segment weights in shared memory
    bool whole_rows;      // a tile is contiguous in global memory
    bool wide_copies;     // rows come into the ring 16 bytes at a time
    int channel_tiles;
    int stretch;      // samples the block of an adjoint works on at a time
    int time_length;  // segments (residual) or samples (adjoint) of a tile
    int time_tiles;
    // Byte offsets in shared memory; the ring is at 0.
    int weights_at;
    int residual_at;
    int starts_at;
    int times_at;
    int scratch_at;
};

struct Plan {
    Tiling tiling;
    int vector;  // elements of an access; 1 on the scalar path
    int threads;
    std::size_t shared_bytes;
    WeightMode weight_mode;
    std::int64_t tiles;  // time_tiles * channel_tiles * batch
};

// `aligned`: every series starts at a multiple of 16 bytes. The problem must not be empty.
Plan make_plan(const Problem& problem, const Weights& weights, Purpose purpose, bool aligned);

// Whether the addresses of all series allow 16-byte access.
inline bool aligned_to_vectors() { return true; }
template <typename... Rest>
bool aligned_to_vectors(const void* first, Rest... rest) {
    return reinterpret_cast<std::uintptr_t>(first) % 16 == 0 && aligned_to_vectors(rest...);
}

}  // namespace wpnode::cuda
