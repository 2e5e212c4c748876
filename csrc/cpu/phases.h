// The weights of a strided correlation, phase by phase.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../core/segments.h"

namespace wpnode::cpu {

// values(r)[t] = factor * w[t q + r], contiguous in t, or reversed in t.
template <typename T>
class PhaseWeights {
  public:
    PhaseWeights(const core::Geometry& g, const T* w, double factor, bool reversed)
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

}  // namespace wpnode::cpu
