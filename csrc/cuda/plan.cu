#include <algorithm>

#include "core/sizes.h"
#include "cuda/plan.h"

namespace wpnode::cuda {
namespace {

constexpr std::int64_t kAlignment = 16;
constexpr std::int64_t kScalarLanes = 32;
constexpr std::int64_t kSharedLimit = 48 * 1024;  // what every device gives without asking
constexpr std::int64_t kSharedBytesPerThread =
    120;  // leaves half of the threads of sm_75 .. sm_120
constexpr std::int64_t kSharedWeightsLimit = 8 * 1024;
constexpr std::int64_t kScratchBytes = 32 * sizeof(double);  // one sum per warp
constexpr std::int64_t kMinBatch = 16;
constexpr std::int64_t kMaxSteps = 16;
// Blocks that keep every multiprocessor of a large device busy once, and comfortably.
constexpr std::int64_t kEnoughTiles = 264;
constexpr std::int64_t kPlentyOfTiles = 1056;

using core::ceil_div;

std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

class Planner {
  public:
    Planner(const Problem& problem, const Weights& weights, Purpose purpose, bool aligned)
        : problem_(problem),
          purpose_(purpose),
          aligned_(aligned),
          segments_(std::max<std::int64_t>(problem.segments, 1)) {
        element_ = static_cast<std::int64_t>(element_size(problem.dtype));
        accumulator_ = static_cast<std::int64_t>(accumulator_size(problem.dtype));
        from_times_ = weights.values == nullptr && weights.times != nullptr;
        per_segment_ = weights.per_segment || from_times_;
        needs_weights_ = purpose != Purpose::kWeightGradient;
        weight_stride_ = (problem.ell + 1) | 1;  // odd: rows of neighbouring groups in other banks

        const std::int64_t row_bytes = accumulator_ * weight_stride_;
        weights_in_shared_ = !needs_weights_ || (per_segment_ ? row_bytes <= kSharedLimit / 2
                                                              : row_bytes <= kSharedWeightsLimit);
        const std::int64_t width = vector_width(static_cast<int>(accumulator_));
        const bool short_rows =
            problem.state <= kScalarLanes && problem.state * element_ < kRowBytes;
        const bool vectors =
            aligned && weights_in_shared_ && problem.state % width == 0 && !short_rows;
        vector_ = vectors ? width : 1;

        // Starts may cluster: expect at most an eighth of a segment between neighbours, and let the
        // kernel take smaller batches where they are farther apart.
        if (problem.starts == nullptr) {
            spacing_ = std::min(problem.q, kMaxCount);
        } else {
            const std::int64_t mean = ceil_div(problem.samples, segments_);
            spacing_ =
                std::clamp<std::int64_t>(mean, 1, std::max<std::int64_t>(1, problem.ell / 8));
        }
    }

    Plan plan() {
        const bool adjoint = !walks_segments();
        const std::int64_t most = adjoint ? kMaxThreads : 256;
        const std::int64_t least = purpose_ == Purpose::kWeightGradient ? most : 128;
        for (threads_ = most;; threads_ /= 2) {
            fit();
            if (batch_ == 0) return plan_with_less();
            choose_length();
            if (threads_ == least || tiles_of(length_) >= kEnoughTiles) break;
            // Half the threads, half the stretch of time: not if the overlap becomes expensive.
            if (length_in_samples() / 2 < 4 * problem_.ell) break;
        }
        return result();
    }

  private:
    // Not even one segment fits: narrower rows, then no shared memory for rows and weights at all.
    Plan plan_with_less() {
        if (vector_ == 1) weights_in_shared_ = false;
        vector_ = 1;
        return plan();
    }

    bool has_ring() const { return purpose_ != Purpose::kAdjoint; }
    bool has_residual_tile() const { return purpose_ != Purpose::kResidual; }
    bool walks_segments() const {
        return purpose_ == Purpose::kResidual || purpose_ == Purpose::kWeightGradient;
    }

    // Lanes, groups, batch and ring for the current number of threads.
    void fit() {
        const std::int64_t units = ceil_div(problem_.state, vector_);
        const std::int64_t most_lanes = ceil_div(units, ceil_div(units, kScalarLanes));
        const std::int64_t soft = std::min(kSharedLimit, kSharedBytesPerThread * threads_);
        for (lanes_ = vector_ > 1 ? kRowBytes / (vector_ * element_) : most_lanes;; lanes_ /= 2) {
            set_groups(units);
            for (const std::int64_t budget : {soft, kSharedLimit}) {
                if (fit_batch(budget) >= std::min(wanted_batch(), kMinBatch)) return;
            }
            if (lanes_ == 1 || !has_ring()) return;
        }
    }

    void set_groups(std::int64_t units) {
        groups_ = threads_ / lanes_;
        // Whole sectors per sweep of the groups, where that idles few threads.
        if (lanes_ == units && groups_ >= 32) groups_ -= groups_ % 8;
    }

    std::int64_t wanted_batch() const { return std::min(2 * groups_, segments_); }

    // The largest batch that fits; 0 if none does.
    std::int64_t fit_batch(std::int64_t budget) {
        std::int64_t low = 0;
        std::int64_t high = wanted_batch();
        while (low < high) {
            const std::int64_t middle = (low + high + 1) / 2;
            set_batch(middle);
            (bytes_ <= budget ? low : high) = bytes_ <= budget ? middle : middle - 1;
        }
        set_batch(low);
        return low;
    }

    void set_batch(std::int64_t batch) {
        batch_ = batch;
        // Dense rows as long as neighbours overlap, then packed.
        const std::int64_t step = std::min(spacing_, problem_.ell + 1);
        const bool ring = has_ring() && weights_in_shared_ && batch > 0;
        ring_rows_ = ring ? (batch - 1) * step + problem_.ell + 1 : 0;
        const bool weights = needs_weights_ && weights_in_shared_;
        const std::int64_t weight_rows = per_segment_ ? batch : 1;
        bytes_ = 0;
        const auto place = [this](std::int64_t bytes) {
            const std::int64_t at = bytes_;
            bytes_ += round_up(bytes, kAlignment);
            return static_cast<int>(at);
        };
        const std::int64_t ring_bytes = ring_rows_ * lanes_ * vector_ * element_;
        // The weight gradient reuses the front for its final sums.
        const std::int64_t sums =
            purpose_ == Purpose::kWeightGradient ? threads_ * kNodesPerThread * 8 : 0;
        place(std::max(ring_bytes, sums));
        weights_at_ = place(weights ? weight_rows * weight_stride_ * accumulator_ : 0);
        residual_at_ = place(has_residual_tile() ? batch * lanes_ * vector_ * accumulator_ : 0);
        starts_at_ = place(problem_.starts ? batch * static_cast<std::int64_t>(sizeof(int)) : 0);
        times_at_ = place(from_times_ ? ring_rows_ * static_cast<std::int64_t>(sizeof(double)) : 0);
        scratch_at_ = place(purpose_ == Purpose::kAdjoint ? 0 : kScratchBytes);
    }

    // The time of a tile: long for little overlap, short for enough tiles.
    void choose_length() {
        rows_ = rows_per_thread(purpose_, static_cast<int>(vector_ * accumulator_));
        while (!walks_segments() && vector_ == 1 && rows_ > 1 &&
               tiles_of(groups_ * rows_) < kEnoughTiles &&
               groups_ * (rows_ - 1) >= 4 * problem_.ell) {
            --rows_;
        }
        const std::int64_t unit = walks_segments() ? batch_ : groups_ * rows_;
        std::int64_t steps = kMaxSteps;
        const auto overlaps_little = [&] {
            return unit * steps / 2 * (walks_segments() ? spacing_ : 1) >= 8 * problem_.ell;
        };
        while (steps > 1 && (tiles_of(unit * steps) < kEnoughTiles ||
                             (tiles_of(unit * steps) < kPlentyOfTiles && overlaps_little()))) {
            steps /= 2;
        }
        length_ = unit * steps;
    }

    std::int64_t channel_tiles() const { return ceil_div(problem_.state, lanes_ * vector_); }
    std::int64_t time_tiles(std::int64_t length) const {
        return ceil_div(walks_segments() ? segments_ : problem_.samples, length);
    }
    std::int64_t tiles_of(std::int64_t length) const {
        return channel_tiles() * time_tiles(length) * problem_.batch;
    }
    std::int64_t length_in_samples() const {
        return walks_segments() ? length_ * spacing_ : length_;
    }

    Plan result() const {
        Plan plan{};
        Tiling& t = plan.tiling;
        t.lanes = static_cast<int>(lanes_);
        t.groups = static_cast<int>(groups_);
        t.batch_segments = static_cast<int>(batch_);
        t.ring_rows = static_cast<int>(ring_rows_);
        t.packed_segments = static_cast<int>(ring_rows_ / (problem_.ell + 1));
        t.rows_per_group = static_cast<int>(rows_);
        t.weight_stride = per_segment_ ? static_cast<int>(weight_stride_) : 0;
        t.whole_rows = vector_ == 1 && lanes_ == problem_.state;
        t.wide_copies = aligned_ && problem_.state * element_ % kCopyBytes == 0 &&
                        (t.whole_rows || vector_ * lanes_ * element_ % kCopyBytes == 0);
        t.channel_tiles = static_cast<int>(channel_tiles());
        t.stretch = static_cast<int>(groups_ * rows_);
        t.time_length = static_cast<int>(length_);
        t.time_tiles = static_cast<int>(time_tiles(length_));
        t.weights_at = weights_at_;
        t.residual_at = residual_at_;
        t.starts_at = starts_at_;
        t.times_at = times_at_;
        t.scratch_at = scratch_at_;
        plan.vector = static_cast<int>(vector_);
        plan.threads = static_cast<int>(threads_);
        plan.shared_bytes = static_cast<std::size_t>(bytes_);
        plan.weight_mode = !weights_in_shared_ ? WeightMode::kGlobal
                           : from_times_       ? WeightMode::kGenerated
                           : per_segment_      ? WeightMode::kRows
                                               : WeightMode::kOneRow;
        plan.tiles = tiles_of(length_);
        return plan;
    }

    const Problem& problem_;
    Purpose purpose_;
    bool aligned_;
    std::int64_t segments_;
    std::int64_t element_, accumulator_, vector_, spacing_, weight_stride_;
    bool from_times_, per_segment_, needs_weights_, weights_in_shared_;
    std::int64_t threads_ = 0, lanes_ = 1, groups_ = 1, batch_ = 1, ring_rows_ = 0, rows_ = 1;
    std::int64_t length_ = 1, bytes_ = 0;
    int weights_at_ = 0, residual_at_ = 0, starts_at_ = 0, times_at_ = 0, scratch_at_ = 0;
};

}  // namespace

std::size_t element_size(DType dtype) {
    switch (dtype) {
        case DType::kFloat64:
            return 8;
        case DType::kFloat32:
            return 4;
        default:
            return 2;
    }
}

std::size_t accumulator_size(DType dtype) { return dtype == DType::kFloat64 ? 8 : 4; }

Plan make_plan(const Problem& problem, const Weights& weights, Purpose purpose, bool aligned) {
    return Planner(problem, weights, purpose, aligned).plan();
}

}  // namespace wpnode::cuda
