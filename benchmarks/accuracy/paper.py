"""Figures printed in the paper, which the tables show beside ours.

Times are in the paper's Lyapunov times; every tuple has a value for each level of
``wpnode_ext.systems.NOISE_RATIOS`` (0, 1, 5, 10, 20 %).
"""

Levels = tuple[float, ...]

# Mean valid prediction times. A comma separates rows of one method.
VPT: dict[str, dict[str, Levels]] = {
    "lorenz63": {
        "wp": (2.70, 2.77, 2.90, 2.23, 0.96),
        "strong": (2.55, 1.88, 1.39, 0.80, 0.36),
        "weak": (3.19, 3.29, 2.77, 1.60, 0.76),
        "mp_node": (1.20, 1.10, 0.86, 0.45, 0.20),
        "vf_node": (2.25, 2.30, 0.86, 0.57, 0.25),
        "deepskip": (4.47, 1.54, 0.56, 0.34, 0.11),
        "rafda": (1.51, 3.13, 2.62, 1.91, 1.16),
    },
    "lorenz96": {
        "wp": (3.65, 3.72, 3.24, 2.75, 2.08),
        "strong": (2.80, 2.74, 2.57, 1.94, 1.23),
        "weak": (3.66, 3.80, 3.19, 2.71, 1.99),
        "mp_node": (1.46, 1.48, 1.35, 1.29, 0.93),
        "vf_node": (0.20, 0.21, 0.20, 0.20, 0.21),
        "deepskip": (6.06, 4.26, 1.64, 1.78, 0.63),
    },
    "kuramoto_sivashinsky": {
        "wp": (3.38, 3.71, 3.31, 2.87, 1.53),
        "strong, T = 50": (2.78, 2.67, 2.89, 2.12, 1.27),
        "strong, T = 25": (2.61, 2.49, 2.45, 1.88, 1.32),
        "weak": (3.49, 3.82, 1.97, 2.42, 0.44),
        "mp_node": (1.63, 2.13, 2.37, 1.57, 1.14),
        "deepskip": (4.26, 2.51, 1.16, 0.76, 0.45),
    },
}
# Their standard deviations over the starts, Lorenz-63.
SPREAD: dict[str, Levels] = {
    "wp": (1.03, 1.12, 1.63, 1.53, 0.59),
    "weak": (1.55, 1.72, 1.77, 0.93, 0.59),
}
# Least Kullback-Leibler divergence of the densities, over all methods.
LEAST_KL: dict[str, Levels] = {
    "lorenz63": (0.001, 0.002, 0.001, 0.003, 0.03),
    "lorenz96": (0.02, 0.02, 0.02, 0.02, 0.02),
    "kuramoto_sivashinsky": (0.03, 0.01, 0.008, 0.01, 0.02),
}
# Seconds an epoch, epochs and seconds in all on an A100; Lorenz-63, 5 % noise.
COST: dict[str, tuple[float, int, int]] = {
    "wp": (0.077, 1820, 140),
    "weak": (0.048, 1673, 81),
    "strong": (0.407, 86, 35),
    "mp_node": (1.488, 500, 744),
    "vf_node": (0.007, 20_000, 131),
}


def best(system: str) -> Levels:
    """Longest valid prediction time of any method at each level of noise."""
    return tuple(max(column) for column in zip(*VPT[system].values(), strict=True))
