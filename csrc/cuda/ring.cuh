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
    // `series`: the series of the tile, at its first channel; `channels` follow from there on, 0
    // for an idle thread.
    __device__ Ring(unsigned char* memory, const Tiling& tiling, const Seat& seat, const T* series,
                    int channels)
        : memory_(reinterpret_cast<Pack<T, V>*>(memory)),
          series_(series),
          lane_(seat.lane),
          group_(seat.group),
          channels_(channels),
          whole_rows_(V == 1 && tiling.whole_rows) {}

    // Brings the rows of the batch in. All threads of the block call it; barriers before (readers
    // of the rows it replaces) and after are the caller's.
    __device__ void load(const Shape& shape, const Tiling& tiling, const Batch& batch) {
        if (kMode == WeightMode::kGlobal) return;
        if (!batch.dense) {
            held_end_ = -1;
            with_copier(tiling, [&](const auto& copier) { load_packed(shape, batch, copier); });
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
        if (!whole_rows_) {
            with_copier(tiling, [&](const auto& copier) {
                load_rows(shape, tiling, from, batch.end, copier);
            });
        } else if (tiling.wide_copies) {
            load_flat<kCopyWidth>(tiling, from, batch.end);
        } else {
            load_flat<1>(tiling, from, batch.end);
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

  private:
    __device__ __forceinline__ const T* row_of(const Shape& shape, int row) const {
        return series_ + static_cast<std::int64_t>(row) * shape.state + lane_ * V;
    }

    // Dense rows r of a batch have origin_ <= r < origin_ + 2 ring_rows.
    __device__ __forceinline__ int position_of(const Tiling& tiling, int row) const {
        const int position = row - origin_;
        return position < tiling.ring_rows ? position : position - tiling.ring_rows;
    }

    static constexpr int kCopyWidth = kCopyBytes / static_cast<int>(sizeof(T));

    // A thread's part in copying rows, C elements at a time: the lanes of a group split into C / V
    // groups, so that neighbouring lanes stay in one row.
    template <int C>
    struct Copier {
        int lane;
        int group;
        int lanes;
        int groups;

        __device__ Copier(const Tiling& tiling, int seat_lane, int seat_group) {
            constexpr int kSplit = C / V;
            lanes = tiling.lanes / kSplit;
            groups = tiling.groups * kSplit;
            const bool second = kSplit > 1 && seat_lane >= lanes;
            lane = second ? seat_lane - lanes : seat_lane;
            group = seat_group * kSplit + (second ? 1 : 0);
        }
    };

    template <typename Copy>
    __device__ __forceinline__ void with_copier(const Tiling& tiling, const Copy& copy) const {
        if constexpr (V > 1 && kCopyWidth > V) {
            static_assert(kCopyWidth == 2 * V);
            if (tiling.wide_copies) {
                const Copier<kCopyWidth> copier(tiling, lane_, group_);
                if (copier.lane * kCopyWidth < channels_) copy(copier);
                return;
            }
        }
        if (lane_ * V < channels_) copy(Copier<V>(tiling, lane_, group_));
    }

    template <int C>
    __device__ void load_rows(const Shape& shape, const Tiling& tiling, int from, int end,
                              const Copier<C>& copier) {
        auto* memory = reinterpret_cast<Pack<T, C>*>(memory_) + copier.lane;
        const T* source = series_ + static_cast<std::int64_t>(from + copier.group) * shape.state +
                          copier.lane * C;
        const std::int64_t source_step = static_cast<std::int64_t>(copier.groups) * shape.state;
#pragma unroll 2
        for (int row = from + copier.group; row < end; row += copier.groups) {
            store_shared(memory + position_of(tiling, row) * copier.lanes,
                         load_global(as_packs<T, C>(source)));
            source += source_step;
        }
    }

    template <int C>
    __device__ void load_packed(const Shape& shape, const Batch& batch, const Copier<C>& copier) {
        auto* memory = reinterpret_cast<Pack<T, C>*>(memory_) + copier.lane;
        const int nodes = shape.ell + 1;
        for (int n = copier.group; n < batch.count * nodes; n += copier.groups) {
            const int start = shape.start(batch.k + shape.by_nodes.divide(n));
            if (!shape.inside(start)) continue;
            const std::int64_t row = start + shape.by_nodes.remainder(n);
            const T* source = series_ + row * shape.state + copier.lane * C;
            store_shared(memory + n * copier.lanes, load_global(as_packs<T, C>(source)));
        }
    }

    // Rows [from, end) of a contiguous tile, C elements at a time. The sweep starts at a sector
    // boundary, so that every request of a warp asks for whole sectors.
    template <int C>
    __device__ void load_flat(const Tiling& tiling, int from, int end) {
        constexpr int kSectorBytes = 32;
        using Unit = Pack<T, C>;
        auto* memory = reinterpret_cast<Unit*>(memory_);
        const int units = tiling.lanes / C;  // of a row
        const auto* source =
            as_packs<T, C>(series_ + static_cast<std::int64_t>(from) * tiling.lanes);
        const auto address = reinterpret_cast<std::uintptr_t>(source);
        const int lead = static_cast<int>(address % kSectorBytes / sizeof(Unit));
        const int first = position_of(tiling, from) * units;
        const int capacity = tiling.ring_rows * units;
        const int size = (end - from) * units;
#pragma unroll 2
        for (int e = static_cast<int>(threadIdx.x) - lead; e < size;
             e += static_cast<int>(blockDim.x)) {
            const Unit value = load_global_if(e >= 0, source + e, Unit{});
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
    int lane_, group_, channels_;
    bool whole_rows_;
};

}  // namespace wpnode::cuda
