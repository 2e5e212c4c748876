"""The protocol of a folder of results, so that rows of two are never mixed."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..common.files import read_json, write_text
from .protocol import Protocol

NAME = "protocol.json"


def agree(folder: Path, protocol: Protocol, methods: Sequence[str]) -> None:
    """Writes ``protocol.json``, or refuses rows that would not fit those in the folder.

    Settings of a method are compared where it was run before. A folder of an earlier
    release that has results and no such file is taken to be of this protocol, with one
    step a sample; a file that lacks an entry, to be of its default.

    Args:
        folder: where ``runs.csv`` is, or will be.
        protocol: what is asked for now.
        methods: that are to be run.

    Raises:
        ValueError: it differs from that of the folder.
    """
    path, wanted = folder / NAME, protocol.description()
    given = wanted["options"]
    wanted["options"] = {method: given.get(method, {}) for method in methods}
    known = None
    if path.exists():
        known = _defaults() | read_json(path)
    elif (folder / "runs.csv").exists():
        known = wanted | {"substeps": _defaults()["substeps"]}
    if known is not None:
        changes = list(differences(known, wanted))
        if changes:
            raise ValueError(
                f"the arguments must be those that the runs in {folder} were made "
                f"with; got {', '.join(changes)}. Repeat those, give another folder "
                "with `-o`, or do all runs again with `--fresh`."
            )
        wanted["options"] = known["options"] | wanted["options"]
        if path.exists() and wanted == known:
            return
    write_text(path, json.dumps(wanted, indent=2, sort_keys=True) + "\n")


def set_aside(folder: Path) -> None:
    """Makes room for other runs; results and protocol are kept as ``*.old``."""
    for name in ("runs.csv", NAME):
        if (folder / name).exists():
            (folder / name).replace(folder / f"{name}.old")


def _defaults() -> dict[str, Any]:
    return {entry.name: entry.default for entry in fields(Protocol)}


def differences(known: dict[str, Any], wanted: dict[str, Any]) -> Iterator[str]:
    """What differs, each as "name new (there old)"."""
    for name in wanted:
        if name != "options" and wanted[name] != known.get(name):
            yield f"{name} {wanted[name]} (there {known.get(name)})"
    for method, options in wanted["options"].items():
        before = known["options"].get(method, options)
        for key in sorted(before.keys() | options.keys()):
            if before.get(key) != options.get(key):
                now, then = options.get(key, "default"), before.get(key, "default")
                yield f"{method}.{key} {now} (there {then})"
