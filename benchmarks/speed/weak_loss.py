"""Forward and backward of the fused loss against stock torch and compiled stock torch.

Everybody gets the left-hand side of the data ready-made and returns the loss and the
gradient with respect to the field values.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

import wpnode_ext as wp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import interleave, peak_extra_bytes, roofs  # noqa: E402

Loss = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    name: str
    n_samples: int
    state: int
    ell: int
    q: int

    @property
    def n_segments(self) -> int:
        return (self.n_samples - 1 - self.ell) // self.q + 1


CASES = (
    Case("Lorenz-63", 10_000, 3, 50, 2),
    Case("Lorenz-96", 100_000, 40, 80, 2),
    Case("KS", 100_000, 64, 60, 2),
    Case("ERA5-like", 64, 18_432, 8, 1),
    Case("sparse", 100_000, 40, 80, 80),
)


def competitors(case: Case, lhs: Tensor, w: Tensor) -> dict[str, Loss]:
    """The same sum in stock torch; `lhs` is ``[K, D]``, a field ``[N, D]``."""
    width, q, n = case.ell + 1, case.q, case.n_samples
    scale = 1.0 / case.n_segments

    def unfold_einsum(f: Tensor) -> Tensor:
        right = torch.einsum("kdi,i->kd", f.unfold(0, width, q), w)
        return scale * (lhs + right).square().sum()

    def unfold_matmul(f: Tensor) -> Tensor:
        return scale * (lhs + f.unfold(0, width, q) @ w).square().sum()

    def conv1d(f: Tensor) -> Tensor:
        right = functional.conv1d(f.T[:, None], w[None, None], stride=q)
        return scale * (lhs + right[:, 0].T).square().sum()

    spectrum = torch.fft.rfft(w, n).conj()[:, None]

    def fft(f: Tensor) -> Tensor:
        full = torch.fft.irfft(torch.fft.rfft(f, dim=0) * spectrum, n, dim=0)
        return scale * (lhs + full[: n - case.ell : q]).square().sum()

    return {
        "unfold + einsum": unfold_einsum,
        "unfold + matmul": unfold_matmul,
        "conv1d": conv1d,
        "fft": fft,
    }


def banded_matmul(case: Case, lhs: Tensor, w: Tensor) -> Loss:
    """The correlation as one dense product; only short series allow it."""
    band = w.new_zeros(case.n_segments, case.n_samples)
    for k in range(case.n_segments):
        band[k, k * case.q : k * case.q + case.ell + 1] = w
    return lambda f: (lhs + band @ f).square().sum() / case.n_segments


def step(loss: Loss, f: Tensor) -> Callable[[], Tensor]:
    def run() -> Tensor:
        f.grad = None
        value = loss(f)
        value.backward()
        return value

    return run


@dataclass(frozen=True)
class Problem:
    """Data of one case: the plan, and its left-hand side and weights."""

    plan: wp.WeakPlan
    f: Tensor
    lhs: Tensor
    w: Tensor


def problem(case: Case, dtype: torch.dtype, device: torch.device) -> Problem:
    generator = torch.Generator().manual_seed(0)
    shape = (2, case.n_samples, case.state)
    v, f = torch.randn(shape, generator=generator, dtype=dtype).to(device)
    plan = wp.WeakPlan(v, dt=0.01, p=8, ell=case.ell, q=case.q)
    _, w_rhs = wp.segment_weights(8, case.ell, 0.01)
    return Problem(plan, f.clone().requires_grad_(), plan.lhs, w_rhs.to(v))


def check(candidates: dict[str, Loss], f: Tensor) -> None:
    """Raises an error unless all candidates agree."""
    results = {}
    for name, loss in candidates.items():
        value = step(loss, f)()
        results[name] = value.detach(), f.grad
    value, gradient = results["fused"]
    tolerance = 1e-4 if f.dtype == torch.float32 else 1e-9
    for name, (other_value, other_gradient) in results.items():
        torch.testing.assert_close(other_value, value, rtol=tolerance, atol=0, msg=name)
        error = (other_gradient - gradient).abs().max() / gradient.abs().max()
        if error > tolerance:
            raise AssertionError(f"{name}: gradients differ by {error:.1e}")


def measure(device: torch.device, *, compiled: bool = True) -> list[dict]:
    rows = []
    for dtype in (torch.float32, torch.float64):
        for case in CASES:
            roof = roofs(device)
            given = problem(case, dtype, device)
            f, lhs, w = given.f, given.lhs, given.w
            candidates = {"fused": given.plan.loss, **competitors(case, lhs, w)}
            if case.n_samples <= 1000:
                candidates["banded matmul"] = banded_matmul(case, lhs, w)
            if compiled:
                torch.compiler.reset()
                candidates |= {
                    f"compiled {name}": torch.compile(loss)
                    for name, loss in competitors(case, lhs, w).items()
                }
            check(candidates, f)
            steps = {name: step(loss, f) for name, loss in candidates.items()}
            times = interleave(steps, device=device)
            rows += _rows(case, dtype, device, times, roof, steps, f)
            print(_line(case, dtype, rows))
    return rows


def _rows(case, dtype, device, times, roof, steps, f) -> list[dict]:
    size = f.element_size()
    flops = 4 * case.n_segments * case.state * (case.ell + 1)  # both directions
    compulsory = (2 * case.n_samples + case.n_segments) * case.state * size
    flop_time = flops / roof[f"flops {dtype}"]
    byte_time = compulsory / roof["bytes"]
    rows = []
    for name, timing in times.items():
        f.grad = None
        extra = peak_extra_bytes(steps[name], device) - f.numel() * size
        rows.append(
            {
                "case": case.name,
                "shape": f"{case.n_samples} x {case.state}, {case.ell}, {case.q}",
                "dtype": str(dtype).removeprefix("torch."),
                "candidate": name,
                "ms": round(timing.median * 1e3, 4),
                "ms low": round(timing.low * 1e3, 4),
                "ms high": round(timing.high * 1e3, 4),
                "repeats": timing.repeats,
                "GFLOP/s": round(flops / timing.median / 1e9, 1),
                "GB/s": round(compulsory / timing.median / 1e9, 2),
                "bound": "flops" if flop_time > byte_time else "bandwidth",
                "% of roof": round(100 * max(flop_time, byte_time) / timing.median, 1),
                "extra MB": round(max(extra, 0) / 1e6, 3),
                "extra % of input": round(100 * max(extra, 0) / (f.numel() * size), 1),
            }
        )
    return rows


def _line(case: Case, dtype: torch.dtype, rows: list[dict]) -> str:
    summary = summarise(rows)[-1]
    return (
        f"{case.name:10s} {dtype}: fused {summary['fused ms']} ms, "
        f"{summary['best']} {summary['best ms']} ms, {summary['ratio']}x, "
        f"{summary['% of roof']} % of the {summary['bound']} roof"
    )


def summarise(rows: list[dict]) -> list[dict]:
    """One row a case: ours against the fastest named competitor."""
    groups: dict[tuple[str, str], list[dict]] = {}
    for row in rows:
        groups.setdefault((row["dtype"], row["case"]), []).append(row)
    summary = []
    for (dtype, name), group in groups.items():
        ours = next(row for row in group if row["candidate"] == "fused")
        others = [
            row for row in group if row["candidate"] not in ("fused", "banded matmul")
        ]
        best = min(others, key=lambda row: row["ms"])
        banded = [row for row in group if row["candidate"] == "banded matmul"]
        summary.append(
            {
                "case": name,
                "shape": ours["shape"],
                "dtype": dtype,
                "fused ms": ours["ms"],
                "best": best["candidate"],
                "best ms": best["ms"],
                "ratio": round(best["ms"] / ours["ms"], 1),
                "banded ms": banded[0]["ms"] if banded else "",
                "bound": ours["bound"],
                "% of roof": ours["% of roof"],
                "extra % of input": ours["extra % of input"],
            }
        )
    return summary
