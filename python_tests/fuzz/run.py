"""Calls every operator entry with numbers from the whole range of int64.

    python python_tests/fuzz/run.py --calls 1000000    # what `make fuzz` does
    python python_tests/fuzz/run.py --only 1234        # one call again, by its seed

The calls are made in child processes, so that one that ends the process or does not
return is reported like any other; the rest go on in a new child.
"""

import argparse
import json
import mmap
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
# Bytes a call may allocate beyond what the loaded process uses. A fixed limit gives the
# same refusals on every machine.
MEMORY = 512 * 2**20
PATIENCE = 120.0  # seconds for one call
CHUNK = 20_000  # calls of a child


@dataclass
class Tally:
    """Numbers of outcomes by entry, and complaints."""

    outcomes: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        said = json.loads(line)
        if "complaint" in said:
            self.complaints.append(said["complaint"])
            print(said["complaint"], flush=True)
        self.outcomes.update(said.get("outcomes", {}))


def fuzz(first: int, calls: int, *, say: bool = False) -> Tally:
    """Makes the calls of the seeds from `first` on."""
    tally, seed, begun = Tally(), first, time.monotonic()
    while seed < first + calls:
        seed = _run_child(seed, min(CHUNK, first + calls - seed), tally)
        if say:
            seconds = time.monotonic() - begun
            print(f"{seed - first} calls, {seconds:.0f} s", flush=True)
    return tally


def _run_child(first: int, calls: int, tally: Tally) -> int:
    """Runs calls in a child process; returns the first seed that is left."""
    with tempfile.TemporaryFile() as place, tempfile.TemporaryFile("w+") as output:
        place.write(first.to_bytes(8, "little"))
        place.flush()
        command = [sys.executable, __file__, "--child", str(place.fileno())]
        found = filter(None, [str(TESTS), os.environ.get("PYTHONPATH")])
        child = subprocess.Popen(
            [*command, "--first", str(first), "--calls", str(calls)],
            stdout=output,
            stderr=subprocess.DEVNULL,
            pass_fds=[place.fileno()],
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join(found),
            },
        )
        with mmap.mmap(place.fileno(), 8, access=mmap.ACCESS_READ) as seen:
            stuck = _wait(child, seen)
            seed = int.from_bytes(seen[:], "little")
        output.seek(0)
        for line in output.read().splitlines():
            tally.add(line)
    if child.returncode == 0:
        return first + calls
    end = f"did not return in {PATIENCE:.0f} s" if stuck else _end(child.returncode)
    tally.add(json.dumps({"complaint": f"seed {seed}: {end}: {describe(seed)}"}))
    return seed + 1


def _wait(child: subprocess.Popen, seen: mmap.mmap) -> bool:
    """Waits for the child; kills it and returns True if one call takes too long."""
    last, since = b"", time.monotonic()
    while True:
        try:
            child.wait(0.5)
            return False
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            if seen[:] != last:
                last, since = seen[:], now
            elif now - since > PATIENCE:
                child.kill()
                child.wait()
                return True


def _end(status: int) -> str:
    return f"ended by signal {-status}" if status < 0 else f"ended with status {status}"


def describe(seed: int) -> str:
    from fuzz.calls import make

    return make(seed).describe()


def _be_child(descriptor: int, first: int, calls: int) -> None:
    from fuzz.calls import make
    from fuzz.judge import judge

    make(0)  # loads what is loaded at the first use
    used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    outcomes: Counter[str] = Counter()
    with mmap.mmap(descriptor, 8) as place:
        for seed in range(first, first + calls):
            place[:] = seed.to_bytes(8, "little")
            call = make(seed)
            outcome, complaint = judge(call)
            outcomes[f"{call.name}: {outcome}"] += 1
            if complaint:
                text = f"seed {seed}: {complaint}: {call.describe()}"
                print(json.dumps({"complaint": text}), flush=True)
    print(json.dumps({"outcomes": outcomes}), flush=True)


def _report(tally: Tally, calls: int, seconds: float) -> None:
    names = sorted({name.rsplit(": ", 1)[0] for name in tally.outcomes})
    print(f"{'entry':52s} {'refused':>9s} {'accepted':>9s} {'compared':>9s}")
    for name in names:
        counts = (
            tally.outcomes[f"{name}: {outcome}"]
            for outcome in ("refused", "accepted", "compared")
        )
        print(f"{name:52s}", *(f"{count:9d}" for count in counts))
    print(f"{calls} calls in {seconds:.0f} s: {len(tally.complaints)} complaints")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--only", type=int, help="make the call of this seed, here")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        _be_child(options.child, options.first, options.calls)
        return 0
    if options.only is not None:
        print(describe(options.only), flush=True)
        from fuzz.calls import make
        from fuzz.judge import judge

        print(*judge(make(options.only)))
        return 0
    begun = time.monotonic()
    tally = fuzz(options.first, options.calls, say=True)
    _report(tally, options.calls, time.monotonic() - begun)
    return int(bool(tally.complaints))


if __name__ == "__main__":
    sys.path.insert(0, str(TESTS))
    sys.exit(main())
