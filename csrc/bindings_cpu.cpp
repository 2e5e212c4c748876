// Python's view of the CPU back end.
#include <pybind11/pybind11.h>

#include "cpu/capability.h"

void bind_cpu(pybind11::module_& m) {
    m.def("cpu_capability", &wpnode::cpu::capability,
          "Instruction set the CPU operators use on this machine.");
}
