"""The command ``wpnode``: its subcommands and exit codes."""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from ..common.files import printable, reason_of
from ..common.memory import keep_freed_memory
from ..training import CheckpointError, TrainingDiverged
from . import (
    compare,
    demo,
    evaluate,
    forecast,
    info,
    noise,
    report,
    simulate,
    train,
    tune,
)
from .common import Parser

COMMANDS = (
    demo,
    simulate,
    noise,
    tune,
    train,
    forecast,
    evaluate,
    compare,
    report,
    info,
)

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

DESCRIPTION = """\
Learn the vector field of a dynamical system from noisy time series, forecast with it,
and see how good it is.
"""

EPILOG = """\
a first tour:
  wpnode demo                                   all steps on noisy Lorenz-63
  wpnode simulate lorenz63 --noise 0.05 -o l63.npz --test l63_test.npz
                                                make data like the paper's
  wpnode noise l63.npz                          how noisy are they?
  wpnode tune l63.npz                           which window suits them?
  wpnode train data.path=l63.npz name=first     learn; files go to runs/first
  wpnode forecast runs/first --data l63.npz     what comes next?
  wpnode evaluate runs/first l63_test.npz       how long do forecasts hold?
  wpnode report runs/first                      one HTML page about the run
  wpnode compare l63.npz --reference l63_test.npz --methods closed_form,deepskip
                                                which method suits them?
Replace l63.npz by your own data: .csv, .npz, .npy, .pt, .mat, .nc or .zarr.

exit codes:
  0  done        1  failed, the reason is on standard error
  2  wrong arguments or settings        3  trained, but the model should not be used
  130  interrupted; training can be resumed
"""


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="wpnode",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"wpnode_ext {version('wpnode_ext')}"
    )
    parser.add_argument(
        "--debug", action="store_true", help="show the traceback of an error"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command, by default that of the process; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    if argv is None:
        # The process is the command's own.
        keep_freed_memory()
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Names that the terminal has no characters for are shown as escapes.
            sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = arguments.run(arguments) or OK
        # A full disk or a closed pipe shows only now.
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has ended, e.g. `| head`, which is not an error.
        _drop_output()
        return OK
    except Exception as error:
        if arguments.debug:
            raise
        return _fail(error)


def _fail(error: Exception) -> int:
    """Prints an error in one line, and returns its exit code."""
    code = FAILED
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        text = "the memory is too small. Use fewer samples, or a smaller field."
    elif isinstance(error, OSError):
        text = reason_of(error)
    elif isinstance(error, CheckpointError | TrainingDiverged | RuntimeError):
        text = str(error)
    elif isinstance(error, ValueError | TypeError | KeyError | ImportError):
        code, text = USAGE, str(error)
        if isinstance(error, KeyError) and error.args:
            text = str(error.args[0])
    else:
        text = f"{type(error).__name__}: {error}. `wpnode --debug` shows where."
    line = printable(" ".join(text.split()) or type(error).__name__)
    print(f"wpnode: error: {line}", file=sys.stderr)
    return code


def _drop_output() -> None:
    """Discards the rest of the output, so that flushing it is no second error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
