// Parts of the Python module, one function a file bindings_<part>.cpp.
#pragma once

#include <pybind11/pybind11.h>

void bind_weights(pybind11::module_& m);
void bind_cpu(pybind11::module_& m);
