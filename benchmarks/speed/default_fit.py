"""Processor seconds of the default fit, of this tree beside others.

    python benchmarks/speed/default_fit.py [--tree ../old] [--rounds 5]
    python benchmarks/speed/default_fit.py --system lorenz96 --seeds 2 3 4 5 6

``WPNODE().fit(v, dt=0.01)`` of N = 10^4 samples with 5 % noise of the global RMS, on
one thread. Each fit runs in a process of its own, and trees take turns. Reported are
user and system seconds of the fit, and of the import before it; the root mean square
error of the refined states in units of the noise, and the valid prediction time in
Lyapunov times from clean starts, show whether the fits are equally good. A tree is the
top folder of a checkout with its compiled module. ``default_fit.md`` is renewed when
Lorenz-63 is timed beside another tree.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

HERE = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
# Lyapunov exponents, and the settings of the fit: forty sites need to be declared.
SYSTEMS = {
    "lorenz63": (0.9056, {}),
    "lorenz96": (1.68, {"field": "ring"}),
    "rossler": (0.0714, {}),
}
SAMPLES = 10_000
FIT = """
import json, os, sys, time
import numpy as np
# The importer of an installation in place would come before the tree.
sys.meta_path[:] = [f for f in sys.meta_path if "_editable" not in type(f).__module__]
began = time.process_time()
import torch
import wpnode_ext as wp
tree = os.environ["PYTHONPATH"]
if not os.path.realpath(wp.__file__).startswith(os.path.realpath(tree) + os.sep):
    sys.exit(f"{tree} was to be timed, but {wp.__file__} was imported")
torch.set_num_threads(1)
data = np.load(sys.argv[1])
settings, exponent, dt = json.loads(sys.argv[2])
imported = time.process_time()
model = wp.WPNODE(**settings).fit(data["v"], dt=dt)
fitted = time.process_time()
states, sigma = np.asarray(model.states_), data["v"] - data["clean"]
error = np.sqrt(np.square(states - data["clean"]).mean() / np.square(sigma).mean())
judged = model.evaluate(data["future"], dt, lyapunov_exponent=exponent, starts=30)
print(json.dumps([fitted - imported, imported - began, float(error), judged.vpt.mean]))
"""


def write_data(path: Path, system: str, seed: int) -> float:
    """Stores observations, clean states and their continuation; the sample interval."""
    from wpnode_ext.data import add_noise
    from wpnode_ext.systems import Lorenz63, Lorenz96

    if system == "lorenz63":
        path_of = Lorenz63().simulate(2 * SAMPLES, 0.01, seed=seed)
    elif system == "lorenz96":
        path_of = Lorenz96().simulate(2 * SAMPLES, 0.01, seed=seed)
    else:
        path_of = _rossler(2 * SAMPLES, 0.05, seed)
    clean, future = path_of[:SAMPLES], path_of[SAMPLES:]
    v, _ = add_noise(clean, 0.05, seed=seed + 100)
    np.savez(path, v=v.numpy(), clean=clean.numpy(), future=future.numpy())
    return 0.05 if system == "rossler" else 0.01


def _rossler(samples: int, dt: float, seed: int):
    """Roessler's system (0.2, 0.2, 5.7), classical Runge-Kutta, five steps a sample."""
    import torch

    def field(u: torch.Tensor) -> torch.Tensor:
        x, y, z = u
        return torch.stack([-y - z, x + 0.2 * y, 0.2 + z * (x - 5.7)])

    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(3, generator=generator, dtype=torch.float64)
    h, path = dt / 5, []
    for number in range(5 * (samples + 2000)):
        k1 = field(u)
        k2 = field(u + h / 2 * k1)
        k3 = field(u + h / 2 * k2)
        u = u + h / 6 * (k1 + 2 * (k2 + k3) + field(u + h * k3))
        if number >= 10_000 and number % 5 == 4:
            path.append(u)
    return torch.stack(path)[:samples]


def fit(tree: Path, data: Path, system: str, dt: float) -> list[float]:
    """Seconds of the fit and of the import, error of the states, prediction time."""
    exponent, settings = SYSTEMS[system]
    arguments = json.dumps([settings, exponent, dt])
    one = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(tree)}
    out = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FIT, str(data), arguments],
        env=os.environ | one,
        capture_output=True,
        text=True,
        check=False,
        cwd=tree,
    )
    if out.returncode:
        raise RuntimeError(out.stderr)
    return json.loads(out.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tree", type=Path, nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=1, help="fits of each seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--system", choices=list(SYSTEMS), default="lorenz63")
    arguments = parser.parse_args()
    trees = {path.resolve().name: path.resolve() for path in arguments.tree}
    trees["this"] = HERE
    rows: dict[str, list[list[float]]] = {name: [] for name in trees}
    with tempfile.TemporaryDirectory() as folder:
        for seed in arguments.seeds:
            data = Path(folder) / f"{seed}.npz"
            dt = write_data(data, arguments.system, seed)
            for _ in range(arguments.rounds):
                for name, tree in trees.items():
                    rows[name].append(fit(tree, data, arguments.system, dt))
                    print(name, seed, *(f"{x:.4g}" for x in rows[name][-1]), flush=True)
    lines = table(rows)
    print(*lines, sep="\n")
    if arguments.system == "lorenz63" and len(trees) > 1:
        write(lines)


def table(rows: dict[str, list[list[float]]]) -> list[str]:
    """Medians over the fits of each tree, and the ratio to the first tree."""
    lines = [
        "| tree | fits | fit, s | import, s | ratio | state error, sigma | VPT |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    first = statistics.median(row[0] for row in next(iter(rows.values())))
    for name, found in rows.items():
        seconds, imports, error, vpt = map(statistics.median, zip(*found, strict=True))
        lines.append(
            f"| {name} | {len(found)} | {seconds:.2f} | {imports:.2f} "
            f"| {seconds / first:.2f} | {error:.4f} | {vpt:.2f} |"
        )
    return lines


def write(lines: list[str]) -> None:
    import torch
    from bench import commit, provenance, write_text

    head = [
        "# Processor seconds of the default fit",
        "",
        "Medians, Lorenz-63, N = 10^4, 5 % noise, one thread, a process each, in",
        "turns; ratio to the first row.",
        "",
    ]
    made = provenance(torch.device("cpu"), {commit()})
    text = "\n".join([*head, *lines, "", f"*{made}*", ""])
    write_text(RESULTS / "default_fit.md", text)


if __name__ == "__main__":
    main()
