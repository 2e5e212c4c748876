// Checks of the sizes and starts of a call. Every argument may be any int64; sizes that pass are so
// small that no index computed from them overflows (sizes.h). Kernels do not check again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "segments.h"

namespace wpnode::core {

template <typename... Parts>
void check(bool condition, const Parts&... parts) {
    if (condition) return;
    std::ostringstream message;
    message << "wpnode: ";
    ((message << parts), ...);
    throw std::invalid_argument(message.str());
}

// Returns the checked sizes of a call whose series has n_samples samples. `n_starts` is the number
// of listed starts; it is empty if segments start at every q-th sample.
inline Geometry checked_geometry(std::int64_t batch, std::int64_t n_samples, std::int64_t state,
                                 std::int64_t ell, std::int64_t q,
                                 std::optional<std::int64_t> n_starts) {
    check(q >= 1, "`q` must be at least 1; got ", q, ".");
    check(ell >= 0 && ell < kMaxElements, "`ell` must be from 0 to ", kMaxElements - 1, "; got ",
          ell, ".");
    check(n_samples >= 0, "`n_samples` must not be negative; got ", n_samples, ".");
    check(n_starts || n_samples > ell, "the series has ", n_samples,
          " samples, fewer than the ell + 1 = ", ell + 1, " a segment needs; use a smaller `ell`.");
    const std::int64_t n_segments = n_starts ? *n_starts : count_segments(n_samples, ell, q);
    for (const std::int64_t rows : {n_samples, n_segments}) {
        check(is_countable({batch, rows, state}), "arrays must have at most 2^56 elements; got [",
              batch, ", ", rows, ", ", state, "]. Split the series.");
    }
    // Every step beyond the end of the series leaves one segment: the smallest one stands for all.
    const std::int64_t step = std::min(q, std::max<std::int64_t>(n_samples, 1));
    return {batch, n_samples, state, n_segments, ell, step};
}

// Checks the size of an output that has one row of weights per segment.
inline void check_rows(const Geometry& g) {
    check(is_countable({g.n_segments, g.ell + 1}), "weights must have at most 2^56 elements; got [",
          g.n_segments, ", ", g.ell + 1, "]. Use fewer segments.");
}

// `starts` is [n_segments], or null if segments start at every q-th sample.
inline void check_start_values(const std::int64_t* starts, const Geometry& g) {
    if (starts == nullptr || g.n_segments == 0) return;
    check(std::is_sorted(starts, starts + g.n_segments), "`starts` must be non-decreasing.");
    const std::int64_t last = g.n_samples - 1 - g.ell;
    check(starts[0] >= 0 && starts[g.n_segments - 1] <= last, "`starts` must lie in 0 .. ", last,
          ".");
}

}  // namespace wpnode::core
