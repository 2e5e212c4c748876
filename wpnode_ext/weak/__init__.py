"""The weak form of a series: test functions, weights, segments, residuals, noise."""
