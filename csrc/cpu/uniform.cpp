// Decomposition: samples are grouped by q, so that group j holds samples j q .. j q + q - 1 and
// segment k starts at the first sample of group k. A tile owns a range of groups and of channels,
// and with phases r = n mod q
//
//     segment[k]       = sum_r sum_t w[t q + r] * phase_r[k + t]        (correlation, q phases)
//     sample[j q + r]  = sum_t       w[t q + r] * segment[j - t]        (adjoint, phase by phase)
//
// are ordinary correlations along rows (microkernels.h, uniform_tile.h). The fused loss does the
// first for its own segments and for a halo of ell / q earlier ones, unless the thread has just
// done those for the tile before, then the second, with the residuals in scratch: one read of f and
// lhs, one write of the gradient.
#include "uniform.h"

#include <vector>

#include "scratch.h"
#include "tiling.h"
#include "uniform_tile.h"

namespace wpnode::cpu {
namespace {

using core::ceil_div;
using core::Geometry;

double multiply_adds(const Geometry& g, const Tiling& tiling, double passes) {
    return passes * static_cast<double>(tiling.rows * tiling.channels) *
           static_cast<double>(g.ell + 1);
}

// Whether samples and segments together outgrow a last-level cache, so that the samples written
// are read from memory later in any case.
bool outgrows_cache(const Geometry& g, std::int64_t value_bytes) {
    constexpr std::int64_t kCacheBytes = std::int64_t{1} << 25;
    return g.batch * (2 * g.n_samples + g.n_segments) * g.state * value_bytes > kCacheBytes;
}

// Calls body(tile index, tile, block of segment rows, tile steps, follows) for every tile;
// `follows` says that the block still holds the rows of the tile before this one in time.
template <typename S, typename Body>
void for_tiles(const Geometry& g, const Tiling& tiling, std::int64_t n_phases, double passes,
               const ParallelFor& parallel_for, const Body& body) {
    using T = AccumulatorOf<S>;
    const std::int64_t halo = g.ell / g.q;
    const std::int64_t segments_size = (tiling.rows + halo) * tiling.channels;
    const std::int64_t packed_size = n_phases * (tiling.rows + 2 * halo) * tiling.channels;
    parallel_for(tiling.n_tiles, grain_for(multiply_adds(g, tiling, passes)),
                 [&](std::int64_t begin, std::int64_t end) {
                     Scratch& scratch = Scratch::of_this_thread();
                     scratch.reserve<T>(packed_size + segments_size, 2);
                     T* packed = scratch.take<T>(packed_size);
                     T* block = scratch.take<T>(segments_size);
                     std::vector<Phase<T>> phases(n_phases);
                     for (std::int64_t index = begin; index < end; ++index) {
                         const Tile tile = tiling.tile(index);
                         const bool follows = index > begin && tile.row > 0;
                         body(index, tile, block, UniformTile<S>(g, tile, packed, phases), follows);
                     }
                 });
}

}  // namespace

template <typename S>
void corr_uniform(const Geometry& g, const S* samples, const AccumulatorOf<S>* w, S* segments,
                  const ParallelFor& parallel_for) {
    using T = AccumulatorOf<S>;
    const PhaseWeights<T> weights(g, w, 1.0, false);
    const Tiling tiling =
        make_tiling(g.batch, g.n_segments, g.state, g.ell / g.q, weights.n_phases() + 1, sizeof(T));
    for_tiles<S>(
        g, tiling, weights.n_phases(), 1, parallel_for,
        [&](std::int64_t, const Tile& tile, T* block, UniformTile<S> steps, bool) {
            const SegmentRange own = steps.own_segments();
            steps.correlate(samples, weights, own, nullptr, block);
            copy_rows(block, tile.n_channels,
                      segments + (tile.batch * g.n_segments + own.begin) * g.state + tile.channel,
                      g.state, own.size(), tile.n_channels);
        });
}

template <typename S>
void corr_t_uniform(const Geometry& g, const S* segments, const AccumulatorOf<S>* w, S* samples,
                    const ParallelFor& parallel_for) {
    using T = AccumulatorOf<S>;
    const PhaseWeights<T> reversed(g, w, 1.0, true);
    const Tiling tiling = make_tiling(g.batch, ceil_div(g.n_samples, g.q), g.state, g.ell / g.q,
                                      reversed.n_phases() + 1, sizeof(T));
    const bool stream = outgrows_cache(g, sizeof(T));
    for_tiles<S>(g, tiling, reversed.n_phases(), 1, parallel_for,
                 [&](std::int64_t, const Tile&, T* block, UniformTile<S> steps, bool) {
                     const SegmentRange range = steps.segments();
                     steps.clear_outside(block);
                     steps.copy_segments(segments, range, steps.row(block, range.begin));
                     steps.spread(block, reversed, samples, stream);
                 });
}

template <typename S>
double weak_loss_uniform(const Geometry& g, const S* f, const AccumulatorOf<S>* lhs,
                         const AccumulatorOf<S>* w, double scale, S* gradient,
                         const ParallelFor& parallel_for) {
    using T = AccumulatorOf<S>;
    const PhaseWeights<T> weights(g, w, 1.0, false);
    const PhaseWeights<T> reversed(g, w, 2.0 * scale, true);
    const Tiling tiling = make_tiling(g.batch, ceil_div(g.n_samples, g.q), g.state, g.ell / g.q,
                                      weights.n_phases() + 1, sizeof(T));
    const bool stream = outgrows_cache(g, sizeof(T));
    std::vector<double> sums(tiling.n_tiles);
    for_tiles<S>(
        g, tiling, weights.n_phases(), gradient ? 2 : 1, parallel_for,
        [&](std::int64_t index, const Tile& tile, T* block, UniformTile<S> steps, bool follows) {
            const SegmentRange own = steps.own_segments();
            const SegmentRange fresh = gradient && !follows ? steps.segments() : own;
            if (gradient && follows) steps.carry_halo(block, tiling.rows);
            steps.clear_outside(block);
            steps.correlate(f, weights, fresh, lhs, steps.row(block, fresh.begin));
            sums[index] = microkernels<T>().sum_squares(steps.row(block, own.begin),
                                                        own.size() * tile.n_channels);
            if (gradient) steps.spread(block, reversed, gradient, stream);
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
