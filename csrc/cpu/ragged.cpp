// Decomposition: a tile owns a range of samples (and of channels), and with them the segments that
// start there. Since starts are sorted, the segments that touch a range of samples are a range of
// k, found by bisection. A segment is one row of output from ell + 1 packed rows; a sample of the
// adjoint is one row from the consecutive segments that contain it, with their weights gathered
// into a short list. Both are the primitive of microkernels.h with a single output row.
#include "ragged.h"

#include <algorithm>
#include <vector>

#include "microkernels.h"
#include "rows.h"
#include "scratch.h"
#include "tiling.h"

namespace wpnode::cpu {
namespace {

using core::Geometry;

// First segment that starts at or after sample n.
std::int64_t first_start(const Geometry& g, const std::int64_t* starts, std::int64_t n) {
    return std::lower_bound(starts, starts + g.n_segments, n) - starts;
}

// The correlation of segments first .. last - 1, written or added to rows of `out`; row 0 of
// `packed` is the sample `origin`.
template <typename T>
void correlate(const Geometry& g, const RaggedWeights<T>& w, std::int64_t first, std::int64_t last,
               const T* packed, std::int64_t origin, std::int64_t width, T* out, bool accumulate) {
    for (std::int64_t k = first; k < last; ++k) {
        const Phase<T> phase{w.row(k), g.ell + 1, packed + (w.starts[k] - origin) * width};
        microkernels<T>().fir(&phase, 1, 1, width, out + (k - first) * width, accumulate);
    }
}

// Writes the adjoint for the samples of a tile; row 0 of `segments` is segment `first`.
template <typename S, typename T>
void spread(const Geometry& g, const Tile& tile, const RaggedWeights<T>& w, std::int64_t first,
            T factor, const T* segments, std::vector<T>& weights, T* row_sum, S* samples) {
    const std::int64_t width = tile.n_channels;
    std::int64_t begin = first_start(g, w.starts, tile.row - g.ell);
    std::int64_t end = begin;
    S* row = samples + (tile.batch * g.n_samples + tile.row) * g.state + tile.channel;
    for (std::int64_t n = tile.row; n < tile.row + tile.n_rows; ++n, row += g.state) {
        while (begin < g.n_segments && w.starts[begin] < n - g.ell) ++begin;
        end = std::max(end, begin);
        while (end < g.n_segments && w.starts[end] <= n) ++end;
        weights.clear();
        for (std::int64_t k = begin; k < end; ++k)
            weights.push_back(factor * w.row(k)[n - w.starts[k]]);
        const Phase<T> phase{weights.data(), end - begin, segments + (begin - first) * width};
        microkernels<T>().fir(&phase, 1, 1, width, row_sum, false);
        copy_rows(row_sum, width, row, g.state, 1, width);
    }
}

Tiling tile_samples(const Geometry& g, std::int64_t value_bytes) {
    return make_tiling(g.batch, g.n_samples, g.state, g.ell, 3, value_bytes);
}

// Segments whose scratch rows a tile needs: those that touch one of its samples.
struct Range {
    std::int64_t begin, end;
    std::int64_t size() const { return end - begin; }
};

Range touching(const Geometry& g, const Tile& tile, const std::int64_t* starts) {
    return {first_start(g, starts, tile.row - g.ell),
            first_start(g, starts, tile.row + tile.n_rows)};
}

Range owned(const Geometry& g, const Tile& tile, const std::int64_t* starts) {
    return {first_start(g, starts, tile.row), first_start(g, starts, tile.row + tile.n_rows)};
}

// The most segments any tile touches: repeated starts make it more than one a sample.
std::int64_t most_segments(const Geometry& g, const Tiling& tiling, const std::int64_t* starts) {
    std::int64_t most = 0;
    for (std::int64_t block = 0; block < tiling.n_row_blocks; ++block)
        most = std::max(most, touching(g, tiling.tile(block), starts).size());
    return most;
}

template <typename S, typename T>
void pack(const Geometry& g, const Tile& tile, const S* samples, std::int64_t begin,
          std::int64_t end, T* packed) {
    copy_rows(samples + (tile.batch * g.n_samples + begin) * g.state + tile.channel, g.state,
              packed, tile.n_channels, end - begin, tile.n_channels);
}

template <typename From, typename T>
void load(const Geometry& g, const Tile& tile, const From* segments, Range range, T* rows) {
    copy_rows(segments + (tile.batch * g.n_segments + range.begin) * g.state + tile.channel,
              g.state, rows, tile.n_channels, range.size(), tile.n_channels);
}

double multiply_adds(const Geometry& g, const Tiling& tiling) {
    const double segments = static_cast<double>(g.n_segments) * static_cast<double>(tiling.rows) /
                            static_cast<double>(std::max<std::int64_t>(g.n_samples, 1));
    return segments * static_cast<double>(tiling.channels) * static_cast<double>(g.ell + 1);
}

}  // namespace

template <typename S>
void corr_ragged(const Geometry& g, const S* samples, const RaggedWeights<AccumulatorOf<S>>& w,
                 S* segments, const ParallelFor& parallel_for) {
    using T = AccumulatorOf<S>;
    const Tiling tiling = tile_samples(g, sizeof(T));
    const std::int64_t most = most_segments(g, tiling, w.starts);
    parallel_for(
        tiling.n_tiles, grain_for(multiply_adds(g, tiling)),
        [&](std::int64_t begin, std::int64_t end) {
            const std::int64_t packed_size = (tiling.rows + g.ell) * tiling.channels;
            Scratch& scratch = Scratch::of_this_thread();
            scratch.reserve<T>(packed_size + most * tiling.channels, 2);
            T* packed = scratch.take<T>(packed_size);
            T* out = scratch.take<T>(most * tiling.channels);
            for (std::int64_t index = begin; index < end; ++index) {
                const Tile tile = tiling.tile(index);
                const Range own = owned(g, tile, w.starts);
                if (own.size() == 0) continue;
                pack(g, tile, samples, tile.row,
                     std::min(g.n_samples, tile.row + tile.n_rows + g.ell), packed);
                correlate(g, w, own.begin, own.end, packed, tile.row, tile.n_channels, out, false);
                copy_rows(
                    out, tile.n_channels,
                    segments + (tile.batch * g.n_segments + own.begin) * g.state + tile.channel,
                    g.state, own.size(), tile.n_channels);
            }
        });
}

template <typename S>
void corr_t_ragged(const Geometry& g, const S* segments, const RaggedWeights<AccumulatorOf<S>>& w,
                   S* samples, const ParallelFor& parallel_for) {
    using T = AccumulatorOf<S>;
    const Tiling tiling = tile_samples(g, sizeof(T));
    const std::int64_t most = most_segments(g, tiling, w.starts);
    parallel_for(tiling.n_tiles, grain_for(multiply_adds(g, tiling)),
                 [&](std::int64_t begin, std::int64_t end) {
                     Scratch& scratch = Scratch::of_this_thread();
                     scratch.reserve<T>((most + 1) * tiling.channels, 2);
                     T* rows = scratch.take<T>(most * tiling.channels);
                     T* row_sum = scratch.take<T>(tiling.channels);
                     std::vector<T> weights;
                     for (std::int64_t index = begin; index < end; ++index) {
                         const Tile tile = tiling.tile(index);
                         const Range range = touching(g, tile, w.starts);
                         load(g, tile, segments, range, rows);
                         spread(g, tile, w, range.begin, T{1}, rows, weights, row_sum, samples);
                     }
                 });
}

template <typename S>
double weak_loss_ragged(const Geometry& g, const S* f, const AccumulatorOf<S>* lhs,
                        const RaggedWeights<AccumulatorOf<S>>& w, double scale, S* gradient,
                        const ParallelFor& parallel_for) {
    using T = AccumulatorOf<S>;
    const Tiling tiling = tile_samples(g, sizeof(T));
    const std::int64_t most = most_segments(g, tiling, w.starts);
    std::vector<double> sums(tiling.n_tiles);
    parallel_for(tiling.n_tiles, grain_for(multiply_adds(g, tiling)),
                 [&](std::int64_t begin, std::int64_t end) {
                     const std::int64_t packed_size = (tiling.rows + 2 * g.ell) * tiling.channels;
                     Scratch& scratch = Scratch::of_this_thread();
                     scratch.reserve<T>(packed_size + (most + 1) * tiling.channels, 3);
                     T* packed = scratch.take<T>(packed_size);
                     T* residuals = scratch.take<T>(most * tiling.channels);
                     T* row_sum = scratch.take<T>(tiling.channels);
                     std::vector<T> weights;
                     for (std::int64_t index = begin; index < end; ++index) {
                         const Tile tile = tiling.tile(index);
                         const Range own = owned(g, tile, w.starts);
                         const Range range = gradient ? touching(g, tile, w.starts) : own;
                         const std::int64_t origin =
                             std::max<std::int64_t>(gradient ? tile.row - g.ell : tile.row, 0);
                         pack(g, tile, f, origin,
                              std::min(g.n_samples, tile.row + tile.n_rows + g.ell), packed);
                         load(g, tile, lhs, range, residuals);
                         correlate(g, w, range.begin, range.end, packed, origin, tile.n_channels,
                                   residuals, true);
                         sums[index] = microkernels<T>().sum_squares(
                             residuals + (own.begin - range.begin) * tile.n_channels,
                             own.size() * tile.n_channels);
                         if (gradient)
                             spread(g, tile, w, range.begin, static_cast<T>(2.0 * scale), residuals,
                                    weights, row_sum, gradient);
                     }
                 });
    double total = 0.0;
    for (const double sum : sums) total += sum;
    return scale * total;
}

#define WPNODE_INSTANTIATE(S)                                                                     \
    template void corr_ragged<S>(const Geometry&, const S*,                                       \
                                 const RaggedWeights<AccumulatorOf<S>>&, S*, const ParallelFor&); \
    template void corr_t_ragged<S>(const Geometry&, const S*,                                     \
                                   const RaggedWeights<AccumulatorOf<S>>&, S*,                    \
                                   const ParallelFor&);                                           \
    template double weak_loss_ragged<S>(const Geometry&, const S*, const AccumulatorOf<S>*,       \
                                        const RaggedWeights<AccumulatorOf<S>>&, double, S*,       \
                                        const ParallelFor&);
WPNODE_INSTANTIATE(double)
WPNODE_INSTANTIATE(float)
WPNODE_INSTANTIATE(BFloat16)
WPNODE_INSTANTIATE(Half)
#undef WPNODE_INSTANTIATE

}  // namespace wpnode::cpu
