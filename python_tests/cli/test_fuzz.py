"""The command ends with an exit code, whatever its arguments and files."""

import random

import numpy as np
import pytest

from training_cases import DT, oscillator_data
from wpnode_ext.cli import main

COMMANDS = "simulate noise tune train forecast evaluate compare report info".split()
FILES = ["d.npz", "junk.npz", "junk.csv", "junk.pt", "junk.yaml", "absent.csv", "runs"]
OPTIONS = (
    "--dt --time --columns --forcing --series --at --steps --state --data --solver "
    "--substeps --lyapunov --threshold --starts --horizon --length --noise --mode "
    "--seed -n -o --rows --criterion --resume --methods --draws --set --workers --json "
    "--no-climate --spread --estimate --dry-run --overwrite --reference --samples"
).split()
SETTINGS = ["weak.ell", "weak.p", "optim.lr", "field.hidden", "name", "data.path", "x"]
VALUES = ["", "0", "-1", "2", "nan", "inf", "x", "[1", "a\0b", "${x}", "\x1b[2J", "1,2"]
SYSTEMS = ["lorenz63", "lorenz96", "kuramoto_sivashinsky"]


def words(rng: random.Random) -> list[str]:
    found = [rng.choice(COMMANDS)]
    if found[0] == "train":
        found.append("--dry-run")
    if found[0] == "simulate":
        found += [rng.choice(SYSTEMS), "-n", rng.choice(["-1", "0", "3", "20"])]
    for _ in range(rng.randrange(6)):
        kind = rng.random()
        if kind < 0.3:
            found.append(rng.choice(FILES))
        elif kind < 0.7:
            found += [rng.choice(OPTIONS), rng.choice(VALUES + FILES)]
        elif kind < 0.9:
            found.append(f"{rng.choice(SETTINGS)}={rng.choice(VALUES)}")
        else:
            found.append(rng.choice(VALUES))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_random_arguments_end_with_an_exit_code(folder, capsys, seed) -> None:
    rng = random.Random(seed)
    np.savez("d.npz", v=oscillator_data(60).numpy(), dt=DT)
    for name in ("junk.npz", "junk.csv", "junk.pt", "junk.yaml"):
        (folder / name).write_bytes(rng.randbytes(200))
    for _ in range(60):
        given = words(rng)
        try:
            code = main(given)
        except SystemExit as end:
            code = end.code
        text = capsys.readouterr().err
        assert code in (0, 1, 2, 3), given
        assert code != 1 or "`wpnode --debug` shows where" not in text, (given, text)
        assert "\x1b" not in text and "\0" not in text, given
        assert code in (0, 3) or text, given
