// The Python module `_C`. Importing it also runs the static registrations of ops.cpp, which
// put the tensor operators into torch's dispatcher.
#include "bindings.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "build_config.h"
#include "cpu/capability.h"

namespace {

constexpr std::uint64_t kAbiTarget = TORCH_TARGET_VERSION;

// TORCH_TARGET_VERSION keeps the major version in the top byte, the minor one in the next.
std::string abi_target() {
    return std::to_string(kAbiTarget >> 56) + "." + std::to_string((kAbiTarget >> 48) & 0xff);
}

pybind11::list split(std::string_view text, char separator) {
    pybind11::list items;
    while (!text.empty()) {
        const auto end = text.find(separator);
        items.append(pybind11::str(std::string(text.substr(0, end))));
        text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    }
    return items;
}

pybind11::dict build_info() {
    using namespace wpnode::build;
    pybind11::dict info;
    info["torch_built_against"] = kTorchVersion;
    info["torch_abi_target"] = abi_target();
    info["compiler"] = kCompiler;
    info["build_type"] = kBuildType;
    info["instruction_sets"] = split(wpnode::cpu::compiled_capabilities(), ' ');
#ifdef WPNODE_WITH_CUDA
    info["cuda"] = true;
    info["cuda_version"] = kCudaVersion;
#else
    info["cuda"] = false;
    info["cuda_version"] = pybind11::none();
#endif
    info["cuda_architectures"] = split(kCudaArchitectures, ';');
    return info;
}

}  // namespace

PYBIND11_MODULE(_C, m) {
    m.doc() = "Compiled part of wpnode_ext.";
    m.def("build_info", &build_info, "Facts fixed when the module was compiled.");
    bind_weights(m);
    bind_cpu(m);
}
