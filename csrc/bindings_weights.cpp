// Python face of the quadrature weights: NumPy arrays in and out, the GIL released meanwhile.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings.h"
#include "core/sizes.h"
#include "core/weights.h"

namespace py = pybind11;

namespace {

using wpnode::core::Rule;
using Doubles = py::array_t<double, py::array::c_style | py::array::forcecast>;
using Indices = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;

// Below this many segments a thread costs more than it saves.
constexpr std::int64_t kSegmentsPerThread = 512;
constexpr std::int64_t kMaxThreads = 8;

Rule parse_rule(const std::string& rule) {
    if (rule == "linear") {
        return Rule::kLinear;
    }
    if (rule == "spline") {
        return Rule::kSpline;
    }
    throw std::invalid_argument("`rule` must be 'linear' or 'spline'; got '" + rule + "'.");
}

void check_starts(const Indices& starts, std::int64_t n_samples, std::int64_t ell) {
    if (n_samples < 0 || ell < 0) {
        throw std::invalid_argument("`n_samples` and `ell` must not be negative; got " +
                                    std::to_string(n_samples) + " and " + std::to_string(ell) +
                                    ".");
    }
    const std::int64_t last = n_samples - 1 - ell;  // a difference of two sizes fits
    const std::int64_t* start = starts.data();
    for (std::int64_t k = 0; k < starts.size(); ++k) {
        if (start[k] < 0 || start[k] > last) {
            throw std::invalid_argument(
                "`starts` must lie between 0 and N - 1 - ell = " + std::to_string(last) + "; got " +
                std::to_string(start[k]) + " at index " + std::to_string(k) + ".");
        }
    }
}

std::pair<Doubles, Doubles> uniform_weights(std::int64_t p, std::int64_t ell, double dt,
                                            std::int64_t d) {
    wpnode::core::check_parameters(p, ell, d);
    Doubles w_lhs(ell + 1);
    Doubles w_rhs(ell + 1);
    double* lhs = w_lhs.mutable_data();
    double* rhs = w_rhs.mutable_data();
    {
        const py::gil_scoped_release release;
        wpnode::core::uniform_weights(static_cast<int>(p), ell, dt, static_cast<int>(d), lhs, rhs);
    }
    return {std::move(w_lhs), std::move(w_rhs)};
}

std::pair<Doubles, Doubles> irregular_weights(std::int64_t p, std::int64_t ell, std::int64_t d,
                                              const std::string& rule_name, const Doubles& t,
                                              const Indices& starts) {
    wpnode::core::check_parameters(p, ell, d);
    const Rule rule = parse_rule(rule_name);
    if (t.ndim() != 1 || starts.ndim() != 1) {
        throw std::invalid_argument("`t` and `starts` must be 1-D; got " +
                                    std::to_string(t.ndim()) + "-D and " +
                                    std::to_string(starts.ndim()) + "-D.");
    }
    check_starts(starts, t.size(), ell);
    const std::int64_t n_segments = starts.size();
    if (!wpnode::core::is_countable({n_segments, ell + 1})) {
        throw std::invalid_argument("weights must have at most 2^56 elements; got " +
                                    std::to_string(n_segments) + " segments of " +
                                    std::to_string(ell + 1) + ". Use fewer segments.");
    }
    Doubles w_lhs({n_segments, ell + 1});
    Doubles w_rhs({n_segments, ell + 1});
    const double* times = t.data();
    const std::int64_t* start = starts.data();
    double* lhs = w_lhs.mutable_data();
    double* rhs = w_rhs.mutable_data();
    {
        const py::gil_scoped_release release;
        // Rows do not depend on each other: the split changes no bit.
        const std::int64_t cores = std::max(1u, std::thread::hardware_concurrency());
        const std::int64_t n_threads = std::clamp<std::int64_t>(n_segments / kSegmentsPerThread, 1,
                                                                std::min(cores, kMaxThreads));
        const auto run = [=](std::int64_t begin, std::int64_t end) {
            wpnode::core::irregular_weights(static_cast<int>(p), ell, static_cast<int>(d), rule,
                                            times, start + begin, end - begin,
                                            lhs + begin * (ell + 1), rhs + begin * (ell + 1));
        };
        std::vector<std::future<void>> others;
        for (std::int64_t i = 1; i < n_threads; ++i) {
            others.push_back(std::async(std::launch::async, run, n_segments * i / n_threads,
                                        n_segments * (i + 1) / n_threads));
        }
        run(0, n_segments / n_threads);
        for (std::future<void>& other : others) {
            other.get();
        }
    }
    return {std::move(w_lhs), std::move(w_rhs)};
}

}  // namespace

void bind_weights(py::module_& m) {
    m.def("check_parameters", &wpnode::core::check_parameters, py::arg("p"), py::arg("ell"),
          py::arg("d"), "Raises ValueError unless weights exist for these parameters.");
    m.def("check_starts", &check_starts, py::arg("starts"), py::arg("n_samples"), py::arg("ell"),
          "Raises ValueError unless every segment lies inside the samples.");
    m.def("uniform_weights", &uniform_weights, py::arg("p"), py::arg("ell"), py::arg("dt"),
          py::arg("d"), "Weights (w_lhs, w_rhs) of equidistant samples, float64 [ell + 1].");
    m.def("irregular_weights", &irregular_weights, py::arg("p"), py::arg("ell"), py::arg("d"),
          py::arg("rule"), py::arg("t"), py::arg("starts"),
          "Weights (w_lhs, w_rhs) of the segments starting at t[starts], float64 "
          "[len(starts), ell + 1].");
}
