// The launchers as C functions, for ctypes. Structs are the launchers' own, mirrored in kernels.py.

#include <cstring>
#include <exception>
#include <string>

#include "core/weights.h"
#include "cuda/launchers.h"
#include "cuda/plan.h"
#include "simulator/runtime.h"
#include "simulator/traffic.h"

namespace {

using namespace wpnode::cuda;

std::string message;

// What the simulator objects to becomes -1 and a message.
template <typename Call>
int guarded(const Call& call) {
    try {
        return call();
    } catch (const std::exception& error) {
        message = error.what();
        return -1;
    }
}

}  // namespace

extern "C" {

const char* sim_message() { return message.c_str(); }

void sim_order(int order) {
    cuda_sim::set_order(static_cast<cuda_sim::Order>(order < 2 ? order : 2),
                        static_cast<unsigned>(order));
}

int sim_corr(const Problem* problem, const Weights* weights, const void* x, void* y) {
    return guarded([&] { return launch_corr(*problem, *weights, x, y, nullptr); });
}

int sim_corr_t(const Problem* problem, const Weights* weights, const void* y, void* x) {
    return guarded([&] { return launch_corr_t(*problem, *weights, y, x, nullptr); });
}

std::size_t sim_weak_loss_workspace(const Problem* problem, const Weights* weights) {
    return weak_loss_workspace(*problem, *weights);
}

int sim_weak_loss(const Problem* problem, const Weights* weights, const void* lhs, const void* f,
                  double scale, void* loss, void* workspace) {
    return guarded([&] {
        return launch_weak_loss(*problem, *weights, lhs, f, scale, loss, workspace, nullptr);
    });
}

std::size_t sim_weak_loss_grad_workspace(const Problem* problem, const Weights* weights) {
    return weak_loss_grad_workspace(*problem, *weights);
}

int sim_weak_loss_grad(const Problem* problem, const Weights* weights, const void* lhs,
                       const void* f, double scale, void* loss, void* grad, void* workspace) {
    return guarded([&] {
        return launch_weak_loss_grad(*problem, *weights, lhs, f, scale, loss, grad, workspace,
                                     nullptr);
    });
}

std::size_t sim_corr_w_workspace(const Problem* problem, bool per_segment) {
    return corr_w_workspace(*problem, per_segment);
}

int sim_corr_w(const Problem* problem, bool per_segment, const void* y, const void* x, void* gw,
               void* workspace) {
    return guarded(
        [&] { return launch_corr_w(*problem, per_segment, y, x, gw, workspace, nullptr); });
}

int sim_weights(const Problem* problem, const double* times, double dt, int p, int order,
                double* w_lhs, double* w_rhs) {
    return guarded(
        [&] { return launch_weights(*problem, times, dt, p, order, w_lhs, w_rhs, nullptr); });
}

int sim_scale(int dtype, std::int64_t count, const void* factor, void* values) {
    return guarded(
        [&] { return launch_scale(static_cast<DType>(dtype), count, factor, values, nullptr); });
}

// The weights of the C++ core, for comparison.
int core_weights(const double* times, double dt, int p, int order, std::int64_t ell,
                 const std::int64_t* starts, std::int64_t segments, double* w_lhs, double* w_rhs) {
    return guarded([&] {
        if (times) {
            wpnode::core::irregular_weights(p, ell, order, wpnode::core::Rule::kLinear, times,
                                            starts, segments, w_lhs, w_rhs);
        } else {
            wpnode::core::uniform_weights(p, ell, dt, order, w_lhs, w_rhs);
        }
        return 0;
    });
}

// threads, shared bytes, vector, lanes, ring rows, batch, weight mode, tiles
void sim_plan(const Problem* problem, const Weights* weights, int purpose, bool aligned,
              std::int64_t* out) {
    const Plan plan = make_plan(*problem, *weights, static_cast<Purpose>(purpose), aligned);
    const std::int64_t values[] = {plan.threads,
                                   static_cast<std::int64_t>(plan.shared_bytes),
                                   plan.vector,
                                   plan.tiling.lanes,
                                   plan.tiling.ring_rows,
                                   plan.tiling.batch_segments,
                                   static_cast<std::int64_t>(plan.weight_mode),
                                   plan.tiles,
                                   plan.tiling.wide_copies};
    std::memcpy(out, values, sizeof(values));
}

// `sampling`: one block in so many runs.
void sim_traffic(bool on, std::uint64_t sampling) {
    cuda_sim::traffic::enable(on);
    cuda_sim::set_sampling(sampling);
}

// requests, bytes, sectors, passes, conflicts of: global loads, global stores, shared loads, shared
// stores
void sim_traffic_totals(double* out) {
    for (int space = 0; space < cuda_sim::traffic::kSpaces; ++space) {
        const auto count = cuda_sim::traffic::total(static_cast<cuda_sim::traffic::Space>(space));
        const double values[] = {count.requests, count.bytes, count.sectors, count.passes,
                                 count.conflicts};
        std::memcpy(out + 5 * space, values, sizeof(values));
    }
}

}  // extern "C"
