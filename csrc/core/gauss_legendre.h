// Gauss-Legendre rules on [0, 1], with the distance of each node to both ends.
#pragma once

#include <vector>

namespace wpnode::core {

// sum_k weight[k] * g(xi[k]) integrates polynomials of degree <= 2n - 1 over [0, 1] exactly.
// eta[k] = 1 - xi[k], kept apart because the nodes crowd at the ends: the difference would lose
// the leading digits of the distance to the nearer end.
struct GaussLegendre {
    std::vector<double> xi;      // [n], increasing
    std::vector<double> eta;     // [n]
    std::vector<double> weight;  // [n], sums to 1
};

// The n-point rule, n >= 1. Every number is within a few ulp of the exact one.
GaussLegendre gauss_legendre(int n);

}  // namespace wpnode::core
