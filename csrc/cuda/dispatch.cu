#include "core/gauss_legendre.h"
#include "core/sizes.h"
#include "core/weights.h"
#include "cuda/dispatch.h"

namespace wpnode::cuda {

static_assert(kMaxPower == core::kMaxP);

int check(const Problem& problem, const Weights* weights) {
    const auto counts = [](std::int64_t n) { return n >= 0 && n <= kMaxCount; };
    bool good = problem.batch >= 0 && counts(problem.samples) && counts(problem.state) &&
                counts(problem.segments) && counts(problem.ell) && problem.q >= 1 &&
                problem.max_blocks >= 1 && problem.max_blocks < std::int64_t{1} << 31 &&
                core::is_countable({problem.batch, problem.samples, problem.state}) &&
                core::is_countable({problem.batch, problem.segments, problem.state});
    if (good && problem.segments > 0 && problem.starts == nullptr) {
        good = (problem.segments - 1) <= (problem.samples - 1 - problem.ell) / problem.q &&
               problem.samples > problem.ell;
    }
    if (good && weights != nullptr && weights->values == nullptr) {
        const int least = weights->kind == WeightKind::kLhsSecondOrder ? 2 : 1;
        good = weights->times != nullptr && weights->p >= least && weights->p <= kMaxPower &&
               problem.ell >= 1 && problem.ell <= kMaxGeneratedEll;
    }
    return good ? cudaSuccess : cudaErrorInvalidValue;
}

HalfRule make_rule(const Weights& weights) {
    return weights.values ? HalfRule{} : make_rule(weights.p);
}

HalfRule make_rule(int p) {
    HalfRule rule{};
    rule.nodes = p + 1;
    rule.power = p;
    const core::GaussLegendre gauss = core::gauss_legendre(rule.nodes);
    for (int n = 0; n < (rule.nodes + 1) / 2; ++n) {
        const auto at = static_cast<std::size_t>(n);
        rule.xi[n] = gauss.xi[at];
        rule.eta[n] = gauss.eta[at];
        rule.weight[n] = gauss.weight[at];
    }
    return rule;
}

std::size_t partial_bytes(const Problem& problem, const Weights& weights, Purpose purpose) {
    if (check(problem, purpose == Purpose::kWeightGradient ? nullptr : &weights)) return 0;
    if (problem.batch == 0 || problem.state == 0) return 0;
    const Plan aligned = make_plan(problem, weights, purpose, true);
    const Plan unaligned = make_plan(problem, weights, purpose, false);
    return static_cast<std::size_t>(std::max(aligned.tiles, unaligned.tiles)) * sizeof(double);
}

const char* error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

}  // namespace wpnode::cuda
