"""Arguments, subcommands, exit codes."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from ..memory import keep_freed_memory
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
  wpnode demo                                   all of it on noisy Lorenz-63
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
Your own data take the place of l63.npz: .csv, .npz, .npy, .pt, .mat, .nc or .zarr.

exit codes:
  0  done        1  failed, the reason is on standard error
  2  wrong arguments or settings        3  trained, but the model should not be used
  130  interrupted; training can be resumed
"""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
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
    try:
        return arguments.run(arguments) or OK
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has gone, e.g. `| head`; that is no failure of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except (CheckpointError, TrainingDiverged, RuntimeError, OSError) as error:
        if arguments.debug:
            raise
        return _fail(error, FAILED)
    except (ValueError, TypeError, KeyError, ImportError) as error:
        if arguments.debug:
            raise
        return _fail(error, USAGE)


def _fail(error: Exception, code: int) -> int:
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    print(f"wpnode: error: {text}", file=sys.stderr)
    return code
