// Decomposition: one output at a time, so nothing is shared between threads. With shared weights an
// output is a pass over all segments; passes of neighbouring taps read almost the same samples,
// which therefore come from cache. This operator is off the training path (weights are constants
// there).
#include "weight_gradient.h"

#include "microkernels.h"

namespace wpnode::cpu {

template <typename T>
void corr_w(const core::Geometry& g, const T* samples, const T* segments,
            const std::int64_t* starts, bool per_segment, T* gw, const ParallelFor& parallel_for) {
    const auto& kernels = microkernels<T>();
    const std::int64_t width = g.ell + 1;
    auto term = [&](std::int64_t b, std::int64_t k, std::int64_t i) {
        const std::int64_t n = (starts ? starts[k] : k * g.q) + i;
        return kernels.dot(segments + (b * g.n_segments + k) * g.state,
                           samples + (b * g.n_samples + n) * g.state, g.state);
    };
    const std::int64_t n_outputs = per_segment ? g.n_segments * width : width;
    const std::int64_t n_terms = per_segment ? g.batch : g.batch * g.n_segments;
    const auto work = static_cast<double>(n_terms) * static_cast<double>(g.state + 8);
    parallel_for(n_outputs, grain_for(work), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t index = begin; index < end; ++index) {
            double sum = 0.0;
            for (std::int64_t b = 0; b < g.batch; ++b) {
                if (per_segment) {
                    sum += term(b, index / width, index % width);
                } else {
                    for (std::int64_t k = 0; k < g.n_segments; ++k) sum += term(b, k, index);
                }
            }
            gw[index] = static_cast<T>(sum);
        }
    });
}

template void corr_w<float>(const core::Geometry&, const float*, const float*, const std::int64_t*,
                            bool, float*, const ParallelFor&);
template void corr_w<double>(const core::Geometry&, const double*, const double*,
                             const std::int64_t*, bool, double*, const ParallelFor&);

}  // namespace wpnode::cpu
