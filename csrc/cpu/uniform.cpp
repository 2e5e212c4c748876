// Decomposition: samples are grouped by q, so that group j holds samples j q .. j q + q - 1 and
// segment k starts at the first sample of group k. A tile owns a range of groups and of channels.
// Its samples are packed by phase r = n mod q into scratch; there
//
//     segment[k]       = sum_r sum_t w[t q + r] * phase_r[k + t]        (correlation, q phases)
//     sample[j q + r]  = sum_t       w[t q + r] * segment[j - t]        (adjoint, phase by phase)
//
// are ordinary correlations along rows (microkernels.h). The fused loss does the first for its own
// segments and for a halo of ell / q earlier ones, then the second, with the residuals in scratch:
// one read of f and lhs, one write of the gradient.
#include "uniform.h"

#include <algorithm>
#include <vector>

#include "microkernels.h"
#include "rows.h"
#include "scratch.h"
#include "tiling.h"

namespace wpnode::cpu {
namespace {

using core::ceil_div;
using core::Geometry;

// The weights of each phase, contiguous: values(r)[t] = factor * w[t q + r], or reversed in t.
template <typename T>
class PhaseWeights {
  public:
    PhaseWeights(const Geometry& g, const T* w, double factor, bool reversed)
        : n_phases_(std::min(g.q, g.ell + 1)) {
        for (std::int64_t r = 0; r < n_phases_; ++r) {
            offsets_.push_back(static_cast<std::int64_t>(values_.size()));
            for (std::int64_t i = r; i <= g.ell; i += g.q)
                values_.push_back(static_cast<T>(factor * w[i]));
            if (reversed) std::reverse(values_.begin() + offsets_.back(), values_.end());
        }
        offsets_.push_back(static_cast<std::int64_t>(values_.size()));
    }

    std::int64_t n_phases() const { return n_phases_; }  // phases with at least one tap
    std::int64_t n_taps(std::int64_t r) const { return offsets_[r + 1] - offsets_[r]; }
    const T* values(std::int64_t r) const { return values_.data() + offsets_[r]; }

  private:
    std::int64_t n_phases_;
    std::vector<T> values_;
    std::vector<std::int64_t> offsets_;
};

// The correlation of segments first .. first + count - 1, written or added to rows of `out`.
template <typename S, typename T>
void correlate(const Geometry& g, const Tile& tile, const S* samples, const PhaseWeights<T>& w,
               std::int64_t first, std::int64_t count, T* packed, std::vector<Phase<T>>& phases,
               T* out, bool accumulate) {
    if (count == 0) return;
    const std::int64_t rows = count + g.ell / g.q;
    const S* origin = samples + (tile.batch * g.n_samples) * g.state + tile.channel;
    for (std::int64_t r = 0; r < w.n_phases(); ++r) {
        T* phase = packed + r * rows * tile.n_channels;
        // Rows past n_taps reach no segment of this tile and may lie past the series.
        const std::int64_t used = count + w.n_taps(r) - 1;
        copy_rows(origin + (first * g.q + r) * g.state, g.q * g.state, phase, tile.n_channels, used,
                  tile.n_channels);
        std::fill(phase + used * tile.n_channels, phase + rows * tile.n_channels, T{0});
        phases[r] = {w.values(r), w.n_taps(r), phase};
    }
    microkernels<T>().fir(phases.data(), w.n_phases(), count, tile.n_channels, out, accumulate);
}

// Writes the adjoint for the samples of the tile's groups. Row 0 of `segments` is segment
// tile.row - ell / q; rows outside the record are zero. `sums` holds n_phases blocks of n_rows
// rows.
template <typename S, typename T>
void spread(const Geometry& g, const Tile& tile, const T* segments, const PhaseWeights<T>& reversed,
            T* sums, S* samples) {
    const std::int64_t halo = g.ell / g.q;
    const std::int64_t width = tile.n_channels;
    const std::int64_t size = tile.n_rows * width;
    const std::int64_t n_phases = reversed.n_phases();
    for (std::int64_t r = 0; r < n_phases; ++r) {
        T* out = sums + r * size;
        const Phase<T> phase{reversed.values(r), reversed.n_taps(r),
                             segments + (halo - (reversed.n_taps(r) - 1)) * width};
        microkernels<T>().fir(&phase, 1, tile.n_rows, width, out, false);
    }

    // Back to the order of time: row j of phase r is sample j q + r of the tile.
    S* origin = samples + (tile.batch * g.n_samples + tile.row * g.q) * g.state + tile.channel;
    const std::int64_t n_samples = std::min(tile.n_rows * g.q, g.n_samples - tile.row * g.q);
    constexpr std::int64_t kNarrow = 8;
    if (width < kNarrow) {
        for (std::int64_t r = 0; r < n_phases; ++r)
            copy_rows(sums + r * size, width, origin + r * g.state, g.q * g.state,
                      ceil_div(std::max<std::int64_t>(n_samples - r, 0), g.q), width);
    } else {
        // Wide rows are written one after the other, so that no cache line is visited twice.
        for (std::int64_t n = 0; n < n_samples; n += g.q)
            copy_rows(sums + n / g.q * width, size, origin + n * g.state, g.state,
                      std::min(n_phases, n_samples - n), width);
    }
    // Samples between segments (q > ell + 1) belong to none.
    for (std::int64_t n = 0; n_phases < g.q && n < n_samples; n += g.q)
        for (std::int64_t r = n_phases; r < std::min(g.q, n_samples - n); ++r)
            std::fill_n(origin + (n + r) * g.state, width, S{});
}

// Rows of `segments` for the groups of a tile and the halo before them: valid ones copied from
// `values`, the others zero. Returns the range of valid segments.
struct Range {
    std::int64_t begin, end;
};

template <typename From, typename T>
Range load_segments(const Geometry& g, const Tile& tile, const From* values, T* segments) {
    const std::int64_t origin = tile.row - g.ell / g.q;
    const std::int64_t rows = tile.n_rows + g.ell / g.q;
    const std::int64_t begin = std::max<std::int64_t>(origin, 0);
    const std::int64_t end = std::max(begin, std::min(g.n_segments, tile.row + tile.n_rows));
    const std::int64_t width = tile.n_channels;
    std::fill(segments, segments + (begin - origin) * width, T{0});
    copy_rows(values + (tile.batch * g.n_segments + begin) * g.state + tile.channel, g.state,
              segments + (begin - origin) * width, width, end - begin, width);
    std::fill(segments + (end - origin) * width, segments + rows * width, T{0});
    return {begin, end};
}

double multiply_adds(const Geometry& g, const Tiling& tiling, double passes) {
    return passes * static_cast<double>(tiling.rows * tiling.channels) *
           static_cast<double>(g.ell + 1);
}

}  // namespace

template <typename S>
void corr_uniform(const Geometry& g, const S* samples, const AccumulatorOf<S>* w, S* segments,
                  const ParallelFor& parallel_for) {
    using T = AccumulatorOf<S>;
    const PhaseWeights<T> weights(g, w, 1.0, false);
    const std::int64_t halo = g.ell / g.q;
    const Tiling tiling =
        make_tiling(g.batch, g.n_segments, g.state, halo, weights.n_phases() + 1, sizeof(T));
    parallel_for(tiling.n_tiles, grain_for(multiply_adds(g, tiling, 1)),
                 [&](std::int64_t begin, std::int64_t end) {
                     const std::int64_t size = tiling.rows * tiling.channels;
                     const std::int64_t packed_size =
                         weights.n_phases() * (tiling.rows + halo) * tiling.channels;
                     Scratch& scratch = Scratch::of_this_thread();
                     scratch.reserve<T>(packed_size + size, 2);
                     T* packed = scratch.take<T>(packed_size);
                     T* out = scratch.take<T>(size);
                     std::vector<Phase<T>> phases(weights.n_phases());
                     for (std::int64_t index = begin; index < end; ++index) {
                         const Tile tile = tiling.tile(index);
                         correlate(g, tile, samples, weights, tile.row, tile.n_rows, packed, phases,
                                   out, false);
                         copy_rows(out, tile.n_channels,
                                   segments + (tile.batch * g.n_segments + tile.row) * g.state +
                                       tile.channel,
                                   g.state, tile.n_rows, tile.n_channels);
                     }
                 });
}

template <typename S>
void corr_t_uniform(const Geometry& g, const S* segments, const AccumulatorOf<S>* w, S* samples,
                    const ParallelFor& parallel_for) {
    using T = AccumulatorOf<S>;
    const PhaseWeights<T> reversed(g, w, 1.0, true);
    const std::int64_t halo = g.ell / g.q;
    const Tiling tiling = make_tiling(g.batch, ceil_div(g.n_samples, g.q), g.state, halo,
                                      reversed.n_phases() + 1, sizeof(T));
    parallel_for(tiling.n_tiles, grain_for(multiply_adds(g, tiling, 1)),
                 [&](std::int64_t begin, std::int64_t end) {
                     const std::int64_t size = reversed.n_phases() * tiling.rows * tiling.channels;
                     const std::int64_t segments_size = (tiling.rows + halo) * tiling.channels;
                     Scratch& scratch = Scratch::of_this_thread();
                     scratch.reserve<T>(segments_size + size, 2);
                     T* rows = scratch.take<T>(segments_size);
                     T* sums = scratch.take<T>(size);
                     for (std::int64_t index = begin; index < end; ++index) {
                         const Tile tile = tiling.tile(index);
                         load_segments(g, tile, segments, rows);
                         spread(g, tile, rows, reversed, sums, samples);
                     }
                 });
}

template <typename S>
double weak_loss_uniform(const Geometry& g, const S* f, const AccumulatorOf<S>* lhs,
                         const AccumulatorOf<S>* w, double scale, S* gradient,
                         const ParallelFor& parallel_for) {
    using T = AccumulatorOf<S>;
    const PhaseWeights<T> weights(g, w, 1.0, false);
    const PhaseWeights<T> reversed(g, w, 2.0 * scale, true);
    const std::int64_t halo = g.ell / g.q;
    const Tiling tiling = make_tiling(g.batch, ceil_div(g.n_samples, g.q), g.state, halo,
                                      weights.n_phases() + 1, sizeof(T));
    std::vector<double> sums(tiling.n_tiles);
    parallel_for(
        tiling.n_tiles, grain_for(multiply_adds(g, tiling, gradient ? 2 : 1)),
        [&](std::int64_t begin, std::int64_t end) {
            const std::int64_t segments_size = (tiling.rows + halo) * tiling.channels;
            const std::int64_t packed_size =
                weights.n_phases() * (tiling.rows + 2 * halo) * tiling.channels;
            Scratch& scratch = Scratch::of_this_thread();
            scratch.reserve<T>(packed_size + segments_size, 2);
            T* packed = scratch.take<T>(packed_size);
            T* residuals = scratch.take<T>(segments_size);
            std::vector<Phase<T>> phases(weights.n_phases());
            for (std::int64_t index = begin; index < end; ++index) {
                const Tile tile = tiling.tile(index);
                Range valid = load_segments(g, tile, lhs, residuals);
                if (!gradient) valid.begin = std::min(std::max(valid.begin, tile.row), valid.end);
                const std::int64_t origin = tile.row - halo;
                correlate(g, tile, f, weights, valid.begin, valid.end - valid.begin, packed, phases,
                          residuals + (valid.begin - origin) * tile.n_channels, true);
                const std::int64_t own = std::min(std::max(valid.begin, tile.row), valid.end);
                sums[index] =
                    microkernels<T>().sum_squares(residuals + (own - origin) * tile.n_channels,
                                                  (valid.end - own) * tile.n_channels);
                // The packed samples have served; their place takes the sums.
                if (gradient) spread(g, tile, residuals, reversed, packed, gradient);
            }
        });
    double total = 0.0;
    for (const double sum : sums) total += sum;
    return scale * total;
}

#define WPNODE_INSTANTIATE(S)                                                                \
    template void corr_uniform<S>(const Geometry&, const S*, const AccumulatorOf<S>*, S*,    \
                                  const ParallelFor&);                                       \
    template void corr_t_uniform<S>(const Geometry&, const S*, const AccumulatorOf<S>*, S*,  \
                                    const ParallelFor&);                                     \
    template double weak_loss_uniform<S>(const Geometry&, const S*, const AccumulatorOf<S>*, \
                                         const AccumulatorOf<S>*, double, S*, const ParallelFor&);
WPNODE_INSTANTIATE(double)
WPNODE_INSTANTIATE(float)
WPNODE_INSTANTIATE(BFloat16)
WPNODE_INSTANTIATE(Half)
#undef WPNODE_INSTANTIATE

}  // namespace wpnode::cpu
