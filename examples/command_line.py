"""The command line of every example: ``--fast`` and ``--figure``."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Settings = TypeVar("Settings")


def start(
    main: Callable[[Settings, Path], None], settings: Settings, *, fast: Settings
) -> None:
    """Runs an example with its settings, or with `fast` ones to see that it works."""
    script = sys.modules["__main__"]
    figure = Path("figures") / f"{Path(sys.argv[0]).stem}.png"
    parser = argparse.ArgumentParser(description=(script.__doc__ or "").splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="seconds, for tests")
    parser.add_argument("--figure", type=Path, default=figure, help=f"default {figure}")
    arguments = parser.parse_args()
    arguments.figure.parent.mkdir(parents=True, exist_ok=True)
    main(fast if arguments.fast else settings, arguments.figure)
    if arguments.figure.exists():
        print(f"figure: {arguments.figure}")
