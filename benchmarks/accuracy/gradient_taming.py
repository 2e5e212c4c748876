"""Growth of gradients through chaos, with and without the windows of MP-NODE.

    python benchmarks/accuracy/gradient_taming.py

The derivative of the mean of ``|z|`` on Lorenz-63 by rho at 28, through classical
Runge-Kutta steps of 0.01 over a time T: once from one initial state, once through ten
windows that start on the trajectory. Written to ``results/gradient_taming.md``.
"""

import tables
import torch
from jaxtyping import Float
from torch import Tensor

from wpnode_ext.systems import Lorenz63

DT, WINDOWS, SEEDS = 0.01, 10, (1, 2, 3)
TIMES = (2, 5, 10, 20, 40)
# Figures of a replication of MP-NODE, from one trajectory.
PUBLISHED = {1: (0.76, 3.6, 22, 7.1e5, 1.2e13), WINDOWS: (4.1, 9.6, 6.7, 11, 14)}


def lorenz(u: Float[Tensor, "K 3"], rho: Float[Tensor, ""]) -> Float[Tensor, "K 3"]:
    x, y, z = u.unbind(-1)
    return torch.stack([10 * (y - x), x * (rho - z) - y, x * y - 8 / 3 * z], -1)


def slope(path: Float[Tensor, "N 3"], duration: float, windows: int) -> float:
    """``|d J / d rho|`` over `duration`, from `windows` states on the trajectory."""
    rho = torch.tensor(28.0, dtype=torch.float64, requires_grad=True)
    steps = round(duration / DT / windows)
    u = path[steps * torch.arange(windows)]
    total = torch.zeros((), dtype=torch.float64)
    for _ in range(steps):
        k1 = lorenz(u, rho)
        k2 = lorenz(u + DT / 2 * k1, rho)
        k3 = lorenz(u + DT / 2 * k2, rho)
        u = u + DT / 6 * (k1 + 2 * (k2 + k3) + lorenz(u + DT * k3, rho))
        total = total + u[:, 2].abs().mean() / steps
    (gradient,) = torch.autograd.grad(total, rho)
    return abs(gradient.item())


def main() -> None:
    arguments = tables.parser_of(__doc__).parse_args()
    torch.set_num_threads(1)
    paths = [Lorenz63().simulate(round(TIMES[-1] / DT) + 1, DT, seed=s) for s in SEEDS]
    rows = []
    for windows, published in PUBLISHED.items():
        found = [[slope(path, time, windows) for path in paths] for time in TIMES]
        cells = [", ".join(f"{value:.2g}" for value in values) for values in found]
        rows.append((str(windows), cells))
        rows.append(("- published", [f"{value:.2g}" for value in published]))
    text = tables.page(
        "Gradients through chaos, with and without windows",
        "`|dJ/d rho|` of `J = mean |z|` on Lorenz-63 over a time T, rho = 28, "
        "classical Runge-Kutta steps of 0.01, three trajectories; a published "
        "replication of MP-NODE below.",
        tables.grid("windows", [f"T = {time}" for time in TIMES], rows),
    )
    tables.write_text(arguments.output / "gradient_taming.md", text)
    print(text)


if __name__ == "__main__":
    main()
