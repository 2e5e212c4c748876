// The correlation and its adjoint on one tile of a uniform layout, each in two ways: on the series
// where they lie, when rows fill vectors and need no conversion, and on copies packed by phase.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "microkernels.h"
#include "phases.h"
#include "rows.h"
#include "tiling.h"

namespace wpnode::cpu {

struct SegmentRange {
    std::int64_t begin, end;
    std::int64_t size() const { return end - begin; }
};

template <typename S, typename T = AccumulatorOf<S>>
class UniformTile {
  public:
    // `packed` has room for n_phases * (tile rows + 2 * halo) rows, used where rows are copied.
    UniformTile(const core::Geometry& g, const Tile& tile, T* packed, std::vector<Phase<T>>& phases)
        : g_(g), tile_(tile), packed_(packed), phases_(phases) {}

    std::int64_t width() const { return tile_.n_channels; }
    std::int64_t halo() const { return g_.ell / g_.q; }
    std::int64_t origin() const { return tile_.row - halo(); }  // may lie before the record

    // Segments that touch the tile's groups: its own and the halo before them.
    SegmentRange segments() const {
        const std::int64_t begin = std::max<std::int64_t>(origin(), 0);
        return {begin, std::max(begin, std::min(g_.n_segments, tile_.row + tile_.n_rows))};
    }

    // Of these, the tile's own.
    SegmentRange own_segments() const {
        const SegmentRange all = segments();
        return {std::min(std::max(all.begin, tile_.row), all.end), all.end};
    }

    // The row of a segment in a block whose row 0 is segment origin().
    T* row(T* block, std::int64_t segment) const { return block + (segment - origin()) * width(); }

    // Zeroes the rows of `block` that are no segments of the record.
    void clear_outside(T* block) const {
        const auto [begin, end] = segments();
        std::fill(block, row(block, begin), T{0});
        std::fill(row(block, end), row(block, tile_.row + tile_.n_rows), T{0});
    }

    // Makes the halo of `block` from what the tile before this one in time left there.
    void carry_halo(T* block, std::int64_t rows_of_tile_before) const {
        std::copy_n(block + rows_of_tile_before * width(), halo() * width(), block);
    }

    template <typename From>
    void copy_segments(const From* values, SegmentRange range, T* out) const {
        copy_rows(at_segment(values, range.begin), g_.state, out, width(), range.size(), width());
    }

    // out[k] = lhs[k] + correlation of segment k, packed rows; lhs may be null.
    void correlate(const S* samples, const PhaseWeights<T>& w, SegmentRange range, const T* lhs,
                   T* out) {
        if (range.size() == 0) return;
        if constexpr (kSameType) {
            if (wide()) return correlate_in_place(samples, w, range, lhs, out);
        }
        if (lhs) copy_segments(lhs, range, out);
        const std::int64_t rows = range.size() + halo();
        for (std::int64_t r = 0; r < w.n_phases(); ++r) {
            T* phase = packed_ + r * rows * width();
            // Rows past n_taps reach no segment of this range and may lie past the series.
            const std::int64_t used = range.size() + w.n_taps(r) - 1;
            copy_rows(at_sample(samples, range.begin * g_.q + r), g_.q * g_.state, phase, width(),
                      used, width());
            std::fill(phase + used * width(), phase + rows * width(), T{0});
            phases_[r] = {w.values(r), w.n_taps(r), phase};
        }
        microkernels<T>().fir(phases_.data(), w.n_phases(), range.size(), width(), out,
                              lhs != nullptr);
    }

    // Writes the adjoint for the samples of the tile's groups. Row 0 of `block` is segment
    // origin(); rows outside the record are zero.
    void spread(const T* block, const PhaseWeights<T>& reversed, S* samples, bool stream) {
        for (std::int64_t r = 0; r < reversed.n_phases(); ++r)
            phases_[r] = {reversed.values(r), reversed.n_taps(r),
                          block + (halo() - (reversed.n_taps(r) - 1)) * width()};
        bool done = false;
        if constexpr (kSameType) {
            if ((done = wide())) spread_in_place(reversed.n_phases(), samples, stream);
        }
        if (!done) spread_packed(reversed.n_phases(), samples);
        // Samples between segments (q > ell + 1) belong to none.
        for (std::int64_t n = 0; reversed.n_phases() < g_.q && n < n_samples(); n += g_.q)
            for (std::int64_t r = reversed.n_phases(); r < std::min(g_.q, n_samples() - n); ++r)
                std::fill_n(at_sample(samples, tile_.row * g_.q + n + r), width(), S{});
    }

  private:
    static constexpr bool kSameType = std::is_same_v<S, T>;
    bool wide() const { return width() >= kWideRow; }
    // Rows to come are asked for early where they follow in memory and a few of them are a small
    // part of the first-level cache; long groups are found by the hardware.
    bool prefetch() const {
        constexpr std::int64_t kGroupBytes = 2048;
        return width() == g_.state && g_.q * g_.state * std::int64_t{sizeof(T)} <= kGroupBytes;
    }

    std::int64_t n_samples() const {
        return std::min(tile_.n_rows * g_.q, g_.n_samples - tile_.row * g_.q);
    }
    template <typename X>
    X* at_sample(X* samples, std::int64_t n) const {
        return samples + (tile_.batch * g_.n_samples + n) * g_.state + tile_.channel;
    }
    template <typename X>
    X* at_segment(X* segments, std::int64_t k) const {
        return segments + (tile_.batch * g_.n_segments + k) * g_.state + tile_.channel;
    }

    void correlate_in_place(const T* samples, const PhaseWeights<T>& w, SegmentRange range,
                            const T* lhs, T* out) {
        for (std::int64_t r = 0; r < w.n_phases(); ++r)
            phases_[r] = {w.values(r), w.n_taps(r), at_sample(samples, range.begin * g_.q + r)};
        microkernels<T>().gather({phases_.data(), w.n_phases(), range.size(), width(),
                                  g_.q * g_.state, lhs ? at_segment(lhs, range.begin) : nullptr,
                                  g_.state, out, width(), prefetch()});
    }

    void spread_in_place(std::int64_t n_phases, T* samples, bool stream) {
        const auto groups = [&](std::int64_t first, std::int64_t count, std::int64_t n_used) {
            if (count == 0 || n_used == 0) return;
            microkernels<T>().spread({phases_.data(), n_used, count, width(), width(),
                                      at_sample(samples, (tile_.row + first) * g_.q),
                                      g_.q * g_.state, g_.state, prefetch(), stream});
        };
        const std::int64_t n_whole = n_samples() / g_.q;
        groups(0, n_whole, n_phases);
        // The record may end within a group.
        for (auto& phase : phases_) phase.in += n_whole * width();
        groups(n_whole, 1, std::min(n_phases, n_samples() - n_whole * g_.q));
    }

    void spread_packed(std::int64_t n_phases, S* samples) {
        const std::int64_t size = tile_.n_rows * width();
        for (std::int64_t r = 0; r < n_phases; ++r)
            microkernels<T>().fir(&phases_[r], 1, tile_.n_rows, width(), packed_ + r * size, false);
        // Back to the order of time: row j of phase r is sample j q + r of the tile.
        S* first = at_sample(samples, tile_.row * g_.q);
        for (std::int64_t r = 0; r < n_phases; ++r)
            copy_rows(packed_ + r * size, width(), first + r * g_.state, g_.q * g_.state,
                      core::ceil_div(std::max<std::int64_t>(n_samples() - r, 0), g_.q), width());
    }

    const core::Geometry& g_;
    Tile tile_;
    T* packed_;
    std::vector<Phase<T>>& phases_;
};

}  // namespace wpnode::cpu
