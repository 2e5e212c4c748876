// How a [batch, rows, state] problem is cut into tiles: a function of the shape alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../core/segments.h"

namespace wpnode::cpu {

struct Tile {
    std::int64_t batch;
    std::int64_t channel, n_channels;
    std::int64_t row, n_rows;
};

struct Tiling {
    std::int64_t state, n_rows;
    std::int64_t channels, n_channel_blocks;
    std::int64_t rows, n_row_blocks;
    std::int64_t n_tiles;

    Tile tile(std::int64_t index) const {
        const std::int64_t row_block = index % n_row_blocks;
        const std::int64_t channel_block = index / n_row_blocks % n_channel_blocks;
        const std::int64_t channel = channel_block * channels;
        const std::int64_t row = row_block * rows;
        return {index / n_row_blocks / n_channel_blocks, channel,
                std::min(channels, state - channel), row, std::min(rows, n_rows - row)};
    }
};

// `halo`: rows a tile reads (and, for the fused loss, recomputes) beyond its own.
// `row_cost`: scratch values a row takes per channel.
inline Tiling make_tiling(std::int64_t batch, std::int64_t n_rows, std::int64_t state,
                          std::int64_t halo, std::int64_t row_cost, std::int64_t value_bytes) {
    using core::ceil_div;
    constexpr std::int64_t kScratchBytes = 256 * 1024;  // about half a second-level cache
    constexpr std::int64_t kWhole = 96, kNarrowest = 64, kWidest = 512;
    Tiling t{};
    t.state = state;
    t.n_rows = n_rows;
    // Short series of wide states take wide blocks: long runs of memory, and halos stay small.
    const std::int64_t budget = kScratchBytes / (row_cost * value_bytes);  // rows x channels
    const std::int64_t fitting = budget / (n_rows + halo + 1) / 16 * 16;
    t.channels = state <= kWhole ? state : std::clamp(fitting, kNarrowest, kWidest);
    while (t.channels > 16 && 4 * halo * t.channels > budget)
        t.channels = ceil_div(ceil_div(t.channels, 2), 8) * 8;
    t.n_channel_blocks = ceil_div(state, t.channels);

    // Few rows must still make several tiles for several threads, but not at the price of halos.
    const std::int64_t fits = budget / t.channels - halo;
    const std::int64_t split = std::max({ceil_div(n_rows, 8), 8 * halo, std::int64_t{64}});
    t.rows = std::max({std::min(fits, split), 2 * halo, std::int64_t{16}});
    t.n_row_blocks = ceil_div(n_rows, t.rows);
    t.rows = ceil_div(n_rows, t.n_row_blocks);
    t.n_row_blocks = ceil_div(n_rows, t.rows);
    t.n_tiles = batch * t.n_channel_blocks * t.n_row_blocks;
    return t;
}

}  // namespace wpnode::cpu
