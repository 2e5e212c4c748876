// Rows of a series in shared memory.
//
// A block works through segments in batches. The rows of a batch stand in shared memory in one of
// two ways. Dense, for segments that overlap: row r at r mod ring_rows, so that a batch adds only
// the rows the one before it did not have. Packed, for segments far apart: the ell + 1 rows of each
// segment one after the other. Without shared memory for a single segment, rows are read where they
// are.
#pragma once

#include <cstdint>

#include "cuda/tile.cuh"
#include "cuda/weights.cuh"

namespace wpnode::cuda {

// A batch of segments and the rows they need. The same in all threads of a block.
struct Batch {
    int k;  // first segment
    int count;
    int begin;  // first row
    int end;    // one past the last row
    bool dense;

    // Up to batch_segments segments from `first` on, fewer if their rows do not fit.
    __device__ Batch(const Shape& shape, const Tiling& tiling, int first, int stop)
        : k(first), count(min(stop - first, tiling.batch_segments)), begin(shape.start(first)) {
        for (;;) {
            end = shape.start(k + count - 1) + shape.ell + 1;
            dense = begin >= 0 && end <= shape.samples && begin < end &&
                    end - begin <= tiling.ring_rows;
            if (dense || count <= tiling.packed_segments || tiling.ring_rows == 0) return;
            count = max(count / 2, tiling.packed_segments);
        }
    }

    // Whether the rows of the segment can be read: not if it leaves the series, or stands out of
    // order in a dense batch.
    __device__ __forceinline__ bool serves(const Shape& shape, int start) const {
        return dense ? start >= begin && start + shape.ell < end : shape.inside(start);
    }
};

// Reads consecutive rows from shared memory.
template <typename T, int V>
struct RingRows {
    const Pack<T, V>* lane;  // this thread's lane of row position 0
    int position;            // in packs
    int step;
    int end;

    __device__ __forceinline__ Pack<T, V> next() {
        const Pack<T, V> row = load_shared(lane + position);
        position += step;
        if (position >= end) position -= end;
        return row;
    }
};

// Reads consecutive rows from global memory.
template <typename T, int V>
struct GlobalRows {
    const T* row;
    int step;

    __device__ __forceinline__ Pack<T, V> next() {
        const Pack<T, V> values = load_global(as_packs<T, V>(row));
        row += step;
        return values;
    }
};

template <typename T, int V, WeightMode kMode>
class Ring {
  public:
    // `series`: the series of the tile, at its first channel.
    __device__ Ring(unsigned char* memory, const Tiling& tiling, const Seat& seat, const T* series,
                    bool active)
        : memory_(reinterpret_cast<Pack<T, V>*>(memory)),
          series_(series),
          lane_(seat.lane),
          group_(seat.group),
          whole_rows_(V == 1 && tiling.whole_rows),
          active_(active) {}

    // Brings the rows of the batch in. All threads of the block call it; barriers before (readers
    // of the rows it replaces) and after are the caller's.
    __device__ void load(const Shape& shape, const Tiling& tiling, const Batch& batch) {
        if (kMode == WeightMode::kGlobal) return;
        if (!batch.dense) {
            held_end_ = -1;
            if (active_) load_packed(shape, tiling, batch);
            return;
        }
        int from = held_end_;
        if (batch.begin < held_begin_ || batch.begin > held_end_) {
            held_begin_ = origin_ = from = batch.begin;
        } else if (batch.begin < origin_) {
            origin_ -= tiling.ring_rows;
        } else if (batch.begin - origin_ >= tiling.ring_rows) {
            origin_ += tiling.ring_rows;
        }
        held_end_ = max(from, batch.end);
        held_begin_ = max(held_begin_, held_end_ - tiling.ring_rows);
        if (whole_rows_) {
            load_flat(tiling, from, batch.end);
        } else if (active_) {
            load_rows(shape, tiling, from, batch.end);
        }
    }

    // Rows of segment j of the batch, which starts at `start`, from `node` on.
    __device__ __forceinline__ auto rows(const Shape& shape, const Tiling& tiling,
                                         const Batch& batch, int j, int start, int node = 0) const {
        if constexpr (kMode == WeightMode::kGlobal) {
            return GlobalRows<T, V>{row_of(shape, start + node), shape.state};
        } else {
            const int row =
                batch.dense ? position_of(tiling, start + node) : j * (shape.ell + 1) + node;
            return RingRows<T, V>{memory_ + lane_, row * tiling.lanes, tiling.lanes,
                                  tiling.ring_rows * tiling.lanes};
        }
    }

    __device__ const T* series() const { return series_; }

  private:
    __device__ __forceinline__ const T* row_of(const Shape& shape, int row) const {
        return series_ + static_cast<std::int64_t>(row) * shape.state + lane_ * V;
    }

    // Dense rows r of a batch have origin_ <= r < origin_ + 2 ring_rows.
    __device__ __forceinline__ int position_of(const Tiling& tiling, int row) const {
        const int position = row - origin_;
        return position < tiling.ring_rows ? position : position - tiling.ring_rows;
    }

    __device__ void load_rows(const Shape& shape, const Tiling& tiling, int from, int end) {
        const T* source = row_of(shape, from + group_);
        const std::int64_t source_step = static_cast<std::int64_t>(tiling.groups) * shape.state;
#pragma unroll 2
        for (int row = from + group_; row < end; row += tiling.groups) {
            store_shared(memory_ + position_of(tiling, row) * tiling.lanes + lane_,
                         load_global(as_packs<T, V>(source)));
            source += source_step;
        }
    }

    __device__ void load_packed(const Shape& shape, const Tiling& tiling, const Batch& batch) {
        const int nodes = shape.ell + 1;
        for (int n = group_; n < batch.count * nodes; n += tiling.groups) {
            const int start = shape.start(batch.k + shape.by_nodes.divide(n));
            if (!shape.inside(start)) continue;
            const int node = shape.by_nodes.remainder(n);
            store_shared(memory_ + n * tiling.lanes + lane_,
                         load_global(as_packs<T, V>(row_of(shape, start + node))));
        }
    }

    // Rows [from, end) of a contiguous tile. The sweep starts at a sector boundary, so that every
    // request of a warp asks for whole sectors.
    __device__ void load_flat(const Tiling& tiling, int from, int end) {
        constexpr int kSectorBytes = 32;
        T* memory = reinterpret_cast<T*>(memory_);
        const T* source = series_ + static_cast<std::int64_t>(from) * tiling.lanes;
        const auto address = reinterpret_cast<std::uintptr_t>(source);
        const int lead = static_cast<int>(address % kSectorBytes / sizeof(T));
        const int first = position_of(tiling, from) * tiling.lanes;
        const int capacity = tiling.ring_rows * tiling.lanes;
        const int size = (end - from) * tiling.lanes;
#pragma unroll 2
        for (int e = static_cast<int>(threadIdx.x) - lead; e < size;
             e += static_cast<int>(blockDim.x)) {
            const T value = load_global_if(e >= 0, source + e, T{});
            const int position = first + e;
            if (e >= 0) {
                store_shared(memory + (position < capacity ? position : position - capacity),
                             value);
            }
        }
    }

    Pack<T, V>* memory_;
    const T* series_;
    int origin_ = 0;  // row at position 0
    // Dense rows at hand: held_begin_ .. held_end_ - 1.
    int held_begin_ = 0;
    int held_end_ = -1;
    int lane_, group_;
    bool whole_rows_, active_;
};

}  // namespace wpnode::cuda
