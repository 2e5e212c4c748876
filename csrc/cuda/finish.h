// Second pass of the deterministic reductions.
#pragma once

#include <cstdint>

#include "cuda/launchers.h"

namespace wpnode::cuda {

// out[i] = scale * sum_t partial[t, i], summed in the order of t; out in the accumulator type.
int launch_finish(DType dtype, const void* partial,  // float64 [rows, columns]
                  std::int64_t rows, std::int64_t columns, double scale, void* out, void* stream);

}  // namespace wpnode::cuda
