"""``wpnode compare``: any set of methods on the same data, one table."""

import argparse
import multiprocessing
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..baselines.comparison import (
    Row,
    read_rows,
    run_job,
    summary,
    without_failures,
    write_rows,
)
from ..baselines.methods import make_method, method_names
from ..baselines.protocol import Job, Protocol
from ..baselines.protocol_file import agree, set_aside
from ..common.files import write_text
from ..common.memory import keep_freed_memory
from ..figures import save_figure
from ..figures.comparison import comparison
from ..solvers.rollouts import ADAPTIVE, FIXED_STEP
from ..training.run_folder import run_lock
from .common import EXPONENTIAL_STEPS, add_command, print_table, say
from .compare_protocol import RUNGE_KUTTA_STEPS, protocol_of
from .compare_table import cells, failures, markdown, unit_of

DESCRIPTION = """\
DATA is a system (lorenz63, lorenz96, kuramoto_sivashinsky) or a file of observations.
All methods get the same noise, starts and judgement. Every finished run is a row of
OUTPUT/runs.csv and is not repeated: call the command again to go on, or with more
methods, levels or draws. What else decides a row is in OUTPUT/protocol.json; other
settings need another folder. The table and its figure are OUTPUT/table.md and .png."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "compare",
        "run several methods on the same data and tabulate them",
        DESCRIPTION,
        "example: wpnode compare lorenz63 --methods closed_form,deepskip,weak_sindy "
        "--noise 0,0.05",
    )
    parser.add_argument("data", help="a system, or a file of observations")
    parser.add_argument(
        "--methods",
        type=_names,
        default="closed_form,deepskip,weak_sindy",
        help=f"comma-separated, of: {', '.join(method_names())}",
    )
    parser.add_argument(
        "--noise",
        type=_levels,
        help="ratios added, comma-separated; 0,0.05 for a system, 0 for a file",
    )
    parser.add_argument("--draws", type=int, default=1, help="of noise and trajectory")
    parser.add_argument("--samples", type=int, help="of a system; its own by default")
    parser.add_argument("--reference", help="file of clean states that continue DATA")
    parser.add_argument("--dt", type=float, help="distance of the samples of a file")
    parser.add_argument("--time", metavar="NAME", help="column or array of the times")
    parser.add_argument("--lyapunov", type=float, help="maximal exponent")
    parser.add_argument("--threshold", type=float, help="error of a valid forecast")
    parser.add_argument("--starts", type=int, default=30, help="forecasts of a model")
    parser.add_argument(
        "--horizon", type=float, help="Lyapunov times to forecast; 12 for systems"
    )
    parser.add_argument(
        "--solver",
        choices=ADAPTIVE + FIXED_STEP,
        help="of forecasts by fields; rk4, for kuramoto_sivashinsky etdrk4",
    )
    parser.add_argument(
        "--substeps",
        type=int,
        help=f"steps a sample of the solver; with rk4 {RUNGE_KUTTA_STEPS}, with etdrk4 "
        f"{EXPONENTIAL_STEPS}, else 1",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="METHOD.KEY=VALUE",
        help="a setting of a method, e.g. deepskip.width=1024",
    )
    parser.add_argument(
        "--retry", action="store_true", help="do runs again that had failed"
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="begin anew; what is in OUTPUT is kept as runs.csv.old",
    )
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("-o", "--output", type=Path, help="folder; compare/DATA")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    protocol = protocol_of(arguments)
    if arguments.noise is None:
        arguments.noise = [0.0] if protocol.system is None else [0.0, 0.05]
    name = protocol.system or Path(arguments.data).stem
    folder = arguments.output or Path("compare") / name
    for method in arguments.methods:
        make_method(
            method, system=protocol.system, options=protocol.options.get(method)
        )
    if arguments.fresh:
        set_aside(folder)
    agree(folder, protocol, arguments.methods)
    path = folder / "runs.csv"
    rows = read_rows(path)
    if arguments.retry:
        rows = without_failures(rows)
        write_rows(path, rows)
    wanted = list(jobs(arguments, rows))
    say(f"{len(wanted)} runs to do, {len(rows)} in {path}")
    for row in results(wanted, protocol, arguments.workers):
        # Another comparison may have written to the same file meanwhile.
        with run_lock(folder, wait=True):
            rows = [*read_rows(path), row]
            write_rows(path, rows)
        say(_line(row))
    if not rows:
        raise RuntimeError("there is nothing to compare; give `--methods`.")
    table = summary(read_rows(path))
    text = markdown(table, name, protocol)
    write_text(folder / "table.md", text)
    print_table(*cells(table))
    for text in failures(table):
        say(text)
    try:
        save_figure(comparison(table, unit_of(protocol)), folder / "table.png")
    except ImportError as error:
        say(f"no figure: {error}")
    say(f"table and figure: {folder}")


def jobs(arguments: argparse.Namespace, done: Sequence[Row]) -> Iterator[Job]:
    """What is left to do, a first draw of everything before a second one."""
    finished = {(row["method"], row["noise"], row["draw"]) for row in done}
    for draw in range(arguments.draws):
        for method in arguments.methods:
            for noise in arguments.noise:
                if (method, noise, draw) not in finished:
                    yield Job(method, noise, draw)


def results(wanted: Sequence[Job], protocol: Protocol, workers: int) -> Iterator[Row]:
    """Rows as they are finished, each run in a process where there are several."""
    if workers <= 1:
        for job in wanted:
            yield run_job(job, protocol)
        return
    context = multiprocessing.get_context("spawn")
    processes = min(workers, max(1, len(wanted)))
    with context.Pool(processes, initializer=keep_freed_memory) as pool:
        yield from pool.imap_unordered(_work, [(job, protocol) for job in wanted])


def _work(task: tuple[Job, Protocol]) -> Row:
    return run_job(*task)


def _line(row: Row) -> str:
    head = f"{row['method']} at {row['noise']:g}, draw {row['draw']}: "
    if row.get("failure"):
        return head + row["failure"]
    return head + f"VPT {row['vpt']:.2f}, {row['seconds']:.1f} s"


def _names(text: str) -> list[str]:
    known, names = method_names(), [word.strip() for word in text.split(",") if word]
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(
                f"{name!r} is no method; known: {', '.join(known)}"
            )
    return names


def _levels(text: str) -> list[float]:
    return [float(word) for word in text.split(",") if word]
