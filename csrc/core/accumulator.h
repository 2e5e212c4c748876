// The type of sums, of weights and of left-hand sides for values stored as S.
#pragma once

#include <type_traits>

namespace wpnode::core {

template <typename S>
using AccumulatorOf = std::conditional_t<std::is_same_v<S, double>, double, float>;

}  // namespace wpnode::core
