"""Counts the memory traffic of the CUDA kernels without a GPU; writes traffic.md.

    python benchmarks/cuda/traffic.py

The simulator runs the kernels' own source and counts the 32-byte sectors of every
request of a warp to global memory, and the passes of every request to shared memory.
Exits with status 1 if a kernel moves more than 1.3 times the least possible or the
vector path has a bank conflict.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python_tests"))

from shapes import OPERATORS, SHAPES, Shape  # noqa: E402

from cuda_sim import kernels  # noqa: E402
from cuda_sim.kernels import Segments, Traffic, Weights  # noqa: E402

REPORT = Path(__file__).with_name("traffic.md")
LIMIT = 1.3


@dataclass(frozen=True)
class Device:
    """Data-sheet figures; peaks are cores * 2 * clock."""

    name: str
    bytes_per_second: float
    multiprocessors: int
    clock: float
    float32: float  # operations a second
    float64: float

    def seconds(self, row: "Row") -> dict[str, float]:
        """Seconds that each resource alone would take."""
        peak = self.float64 if row.shape.dtype == torch.float64 else self.float32
        return {
            "memory": row.moved / self.bytes_per_second,
            "shared": row.passes / (self.multiprocessors * self.clock),
            "arithmetic": row.operations / peak,
        }


DEVICES = (
    Device("A100 40 GB", 1.555e12, 108, 1.41e9, 19.5e12, 9.7e12),
    Device("H100 SXM", 3.35e12, 132, 1.98e9, 66.9e12, 33.5e12),
)


@dataclass(frozen=True)
class Row:
    shape: Shape
    operator: str
    vector: bool
    least: int
    moved: float
    conflicts: float
    passes: float
    operations: int

    @property
    def ratio(self) -> float:
        return self.moved / self.least

    @property
    def good(self) -> bool:
        return self.ratio <= LIMIT and not (self.vector and self.conflicts)


def run(operator: str, shape: Shape) -> Traffic:
    samples = shape.samples
    segments = Segments(shape.ell, shape.q)
    wide = kernels.accumulator(shape.dtype)
    x = torch.ones(1, samples, shape.state, dtype=shape.dtype)
    y = torch.ones(1, shape.segments, shape.state, dtype=shape.dtype)
    lhs = y.to(wide)
    weights = Weights(torch.ones(shape.ell + 1, dtype=wide))
    with Traffic(shape.sampling) as traffic:
        match operator:
            case "corr":
                kernels.corr(x, weights, segments)
            case "corr_t":
                kernels.corr_t(y, weights, segments, samples)
            case "corr_w":
                kernels.corr_w(y, x, segments, per_segment=False)
            case "weak_loss":
                kernels.weak_loss(lhs, x, weights, segments, 1.0)
            case "weak_loss_grad":
                kernels.weak_loss_grad(lhs, x, weights, segments, 1.0)
    return traffic


def irregular_line(operator: str, shape: Shape) -> str:
    """A row for weights of each segment: generated from times, or from an array."""
    segments = Segments(shape.ell, shape.q)
    wide = kernels.accumulator(shape.dtype)
    f = torch.ones(1, shape.samples, shape.state, dtype=shape.dtype)
    lhs = torch.ones(1, shape.segments, shape.state, dtype=wide)
    times = torch.arange(shape.samples, dtype=torch.float64)
    array = torch.ones(shape.segments, shape.ell + 1, dtype=wide)
    run = kernels.weak_loss if operator == "weak_loss" else kernels.weak_loss_grad
    moved = []
    for weights in (Weights(times=times, p=8), Weights(array)):
        with Traffic(shape.sampling) as traffic:
            run(lhs, f, weights, segments, 1.0)
        moved.append(traffic.global_bytes)
    least = shape.least_bytes(operator) + times.nbytes
    cells = [shape.name, operator, f"{least / 1e6:.3f}", f"{moved[0] / 1e6:.3f}"]
    cells += [f"{moved[0] / least:.2f}", f"{moved[1] / 1e6:.3f}"]
    return f"| {' | '.join(cells)} |"


def measure(operator: str, shape: Shape) -> Row:
    traffic = run(operator, shape)
    plan = shape.plan(operator)
    return Row(
        shape,
        operator,
        plan["vector"] > 1,
        shape.least_bytes(operator),
        traffic.global_bytes,
        traffic.conflicts,
        traffic.shared_passes,
        shape.operations(operator),
    )


REPORT_TEXT = """\
# Memory traffic of the CUDA kernels

Written by `python benchmarks/cuda/traffic.py`. Counted by the simulator of
`python_tests/cuda_sim/simulator` on the kernels' own source; nothing here was measured
on a GPU.

- *least*: every input and output once. *moved*: 32 bytes for every sector a request of
  a warp touches, as if no cache held what neighbouring blocks share. The bar is
  {limit} times the least. Large problems are counted on one block in {sampling}.
- *conflicts*: passes over shared memory beyond the necessary ones. The vector path must
  have none; the scalar path (small states) may.

| problem | operator | path | N x D | least MB | moved MB | ratio | conflicts |
| --- | --- | --- | --- | --- | --- | --- | --- |
{traffic}

## Irregular times

Every segment has weights of its own. *moved*: they are generated from the times inside
the kernel; *with an array*: the same call reads them from memory. No bar: few segments
have their weights in shared memory at once, so small problems are cut finer.

| problem | operator | least MB | moved MB | ratio | with an array MB |
| --- | --- | --- | --- | --- | --- |
{irregular}

## Roofline estimate

An **estimate** from the counts above and data sheets, not a measurement: the time each
resource alone would need for one sample of the series (all of its channels), in
nanoseconds, on a device kept busy. Memory: the bytes moved at full bandwidth. Shared:
one pass a cycle and multiprocessor. Arithmetic: fused multiply-adds at peak. Small
problems are bound by the launch instead (a few microseconds).

| problem | operator | device | memory | shared | arithmetic | bound by |
| --- | --- | --- | --- | --- | --- | --- |
{roofline}
"""


def traffic_line(row: Row) -> str:
    shape = row.shape
    cells = [
        shape.name,
        row.operator,
        "vector" if row.vector else "scalar",
        f"{shape.samples} x {shape.state}",
        f"{row.least / 1e6:.3f}",
        f"{row.moved / 1e6:.3f}",
        f"{row.ratio:.2f}",
        f"{row.conflicts:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def roofline_line(row: Row, device: Device) -> str:
    times = {
        name: 1e9 * seconds / row.shape.samples
        for name, seconds in device.seconds(row).items()
    }
    bound = max(times, key=lambda name: times[name])
    cells = [row.shape.name, row.operator, device.name]
    cells += [f"{time:.3g}" for time in times.values()]
    return f"| {' | '.join([*cells, bound])} |"


def report(rows: list[Row], irregular: list[str]) -> str:
    return REPORT_TEXT.format(
        limit=LIMIT,
        sampling=max(shape.sampling for shape in SHAPES),
        traffic="\n".join(traffic_line(row) for row in rows),
        irregular="\n".join(irregular),
        roofline="\n".join(
            roofline_line(row, device) for row in rows for device in DEVICES
        ),
    )


def main() -> int:
    rows = []
    for shape in SHAPES:
        for operator in OPERATORS:
            rows.append(measure(operator, shape))
            row = rows[-1]
            mark = "" if row.good else "   <-- over the bar"
            print(traffic_line(row) + mark, flush=True)
    irregular = []
    for shape in SHAPES:
        for operator in ("weak_loss", "weak_loss_grad"):
            irregular.append(irregular_line(operator, shape))
            print(irregular[-1], flush=True)
    partial = REPORT.with_suffix(".partial")
    partial.write_text(report(rows, irregular))
    partial.replace(REPORT)
    return int(not all(row.good for row in rows))


if __name__ == "__main__":
    sys.exit(main())
