"""Seconds an epoch on Lorenz-63: ours, and a plain torch version of the paper's text.

    python benchmarks/speed/epoch_cost.py [--rounds 5] [--threads 1]

The paper's settings: N = 10^4, dt = 0.01, 5 % noise, network 3-200-200-3 (GELU),
batches of 2048, p = 8, ell = 50, q = 2; strong windows T = 2 beside the weak form and
T = 25 alone, dopri5 with tolerances of 1e-6. All methods see the same record in an
epoch, with a segment or a window at every second sample, in three steps.

"plain" gathers each segment, evaluates the network at each of its nodes, and solves the
strong windows with torchdiffeq, as the formulas are written. Methods take
turns, one epoch each, so that a busy machine slows all of them alike. The table goes to
``benchmarks/speed/results/epoch_cost.md``, all times to ``epoch_cost.csv``.
"""

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torchdiffeq import odeint

from wpnode_ext import segment_weights
from wpnode_ext.coordinates.scaling import MinMaxScaler
from wpnode_ext.data import add_noise, lay_end_to_end
from wpnode_ext.fields import MLPField
from wpnode_ext.settings.config import TrainConfig, resolve
from wpnode_ext.systems import Lorenz63
from wpnode_ext.training.batches import Batches
from wpnode_ext.training.objective import Objective

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import RESULTS, described_parser, provenance, write_text  # noqa: E402

N, DT, P, ELL, Q, BATCH, LAM = 10_000, 0.01, 8, 50, 2, 2048, 0.5


def scaled_data() -> Tensor:
    clean = Lorenz63().simulate(N, DT, seed=1)
    noisy, _ = add_noise(clean, 0.05, seed=2)
    return MinMaxScaler().fit(noisy).transform(noisy).float()


def make_network() -> MLPField:
    return MLPField.preset("2x200", 3, generator=torch.Generator().manual_seed(0))


def our_epoch(method: str, v: Tensor) -> Callable[[], list[float]]:
    """One epoch as the trainer runs it."""
    config = TrainConfig(method=method)  # type: ignore[arg-type]
    config.strong.stride = Q
    record, config, field = lay_end_to_end(v, dt=DT), resolve(config), make_network()
    objective, batches = Objective(field, record, config), Batches(record, config)
    optimizer = torch.optim.Adam(field.parameters(), lr=2e-3)
    number = iter(range(10**9))

    def epoch() -> list[float]:
        losses = []
        for batch in batches.epoch(next(number)):
            optimizer.zero_grad()
            loss = objective.total(*objective(batch))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    return epoch


def plain_epoch(method: str, v: Tensor) -> Callable[[], list[float]]:
    """One epoch with stock torch: every segment gathered, every node evaluated."""
    field = make_network()
    optimizer = torch.optim.Adam(field.parameters(), lr=2e-3)
    w_lhs, w_rhs = (w.float() for w in segment_weights(P, ELL, DT))
    nodes = torch.arange(ELL + 1)
    segments = torch.arange(0, N - ELL, Q)
    starts, times = torch.arange(0, N - 1, Q), torch.tensor([0.0, DT])

    def weak_loss(first: Tensor) -> Tensor:
        window = v[first[:, None] + nodes]
        f = field(0.0, window)
        residual = torch.einsum("kid,i->kd", window, w_lhs)
        residual = residual + torch.einsum("kid,i->kd", f, w_rhs)
        return residual.square().sum(-1).mean()

    def strong_loss(first: Tensor) -> Tensor:
        path = odeint(field, v[first], times, method="dopri5", rtol=1e-6, atol=1e-6)
        return (path[1] - v[first + 1]).square().sum(-1).mean()

    def epoch() -> list[float]:
        losses = []
        chunks = segments[torch.randperm(len(segments))].split(BATCH)
        order = starts[torch.randperm(len(starts))].tensor_split(len(chunks))
        for weak_part, strong_part in zip(chunks, order, strict=True):
            optimizer.zero_grad()
            loss = weak_loss(weak_part)
            if method == "wp":
                loss = loss + LAM * strong_loss(strong_part)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    return epoch


def check_first_losses(v: Tensor) -> float:
    """Largest relative difference of the losses of the whole record, in float64."""
    worst = 0.0
    for method in ("weak", "wp"):
        config = resolve(TrainConfig(method=method))  # type: ignore[arg-type]
        config.optim.batch_size = 10**9
        v = v.double()
        record, field = lay_end_to_end(v, dt=DT), make_network().double()
        objective = Objective(field, record, config)
        (batch,) = Batches(record, config).epoch(0)
        with torch.no_grad():
            weak, strong = objective(batch)
            first = batch.segments.flatten()
            window = v[first[:, None] + torch.arange(ELL + 1)]
            w_lhs, w_rhs = segment_weights(P, ELL, DT)
            right = torch.einsum("kid,i->kd", field(0.0, window), w_rhs)
            left = torch.einsum("kid,i->kd", window, w_lhs)
            plain = (left + right).square().sum(-1).mean()
            worst = max(worst, (weak / plain - 1).abs().item())
            if method == "wp":
                start = batch.samples[:, batch.windows].flatten()
                times = torch.tensor([0.0, DT], dtype=torch.float64)
                path = odeint(field, v[start], times, rtol=1e-6, atol=1e-6)
                plain = (path[1] - v[start + 1]).square().sum(-1).mean()
                worst = max(worst, (strong / plain - 1).abs().item())
    return worst


def main() -> None:
    parser = described_parser(__doc__, RESULTS)
    parser.add_argument("--rounds", type=int, default=5, help="epochs of each method")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    v = scaled_data()
    difference = check_first_losses(v)
    print(f"losses of plain and fused versions differ by {difference:.1e} (relative)")
    epochs = {
        "weak": our_epoch("weak", v),
        "wp": our_epoch("wp", v),
        "plain weak": plain_epoch("weak", v),
        "plain wp": plain_epoch("wp", v),
        "strong T=25": our_epoch("strong", v),
    }
    seconds: dict[str, list[float]] = {name: [] for name in epochs}
    for number in range(arguments.rounds + 1):
        for name, epoch in epochs.items():
            began = time.perf_counter()
            losses = epoch()
            took = time.perf_counter() - began
            if number > 0:  # the first round warms up
                seconds[name].append(took)
            print(f"round {number} {name:12s} {took:8.3f} s  {len(losses)} steps")
    write(seconds, difference, arguments)


def write(
    seconds: dict[str, list[float]], difference: float, arguments: argparse.Namespace
) -> None:
    middle = {name: statistics.median(times) for name, times in seconds.items()}
    ratios = [
        ("weak against plain weak", middle["plain weak"] / middle["weak"], 15),
        ("wp against plain wp", middle["plain wp"] / middle["wp"], 5),
        ("wp against strong T = 25", middle["strong T=25"] / middle["wp"], 10),
    ]
    machine = f"{provenance(torch.device('cpu'))}; {arguments.rounds} rounds"
    lines = [
        "# Seconds an epoch, Lorenz-63, N = 10^4",
        "",
        f"{machine}. Median and range over the rounds; methods take turns.",
        f"Losses of the fused and the plain versions agree to {difference:.1e}.",
        "",
        "| method | seconds an epoch | range |",
        "| --- | --- | --- |",
        *(
            f"| {name} | {middle[name]:.3f} | {min(times):.3f} - {max(times):.3f} |"
            for name, times in seconds.items()
        ),
        "",
        "| comparison | times faster | bar |",
        "| --- | --- | --- |",
        *(f"| {name} | {ratio:.1f} | {bar} |" for name, ratio, bar in ratios),
        "",
    ]
    arguments.output.mkdir(parents=True, exist_ok=True)
    write_text(arguments.output / "epoch_cost.md", "\n".join(lines))
    with (arguments.output / "epoch_cost.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["method", "round", "seconds", "machine"])
        for name, times in seconds.items():
            for number, took in enumerate(times, start=1):
                writer.writerow([name, number, f"{took:.6f}", machine])
    print("\n".join(lines))


if __name__ == "__main__":
    main()
