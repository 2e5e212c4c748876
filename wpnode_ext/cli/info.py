"""``wpnode info``: versions and build, for bug reports."""

import argparse
import json

from ..training.run_folder import environment
from .common import add_command, print_table


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(commands, "info", "show versions, devices and the build")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    found = environment()
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    rows = []
    for key, value in found.items():
        if isinstance(value, dict):
            rows += [(f"{key}.{name}", inner) for name, inner in value.items()]
        else:
            rows.append((key, value))
    print_table(rows)
