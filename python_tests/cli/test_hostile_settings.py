"""Errors name settings that are broken, endless or refer to something else."""

import pytest

from wpnode_ext.cli import main
from wpnode_ext.cli.data import RunConfig, run_folder_of
from wpnode_ext.settings.text import load

LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
BROKEN = {
    "open bracket": (b"name: [a\n", "line 2"),
    "tab": (b"weak:\n\tp: 3\n", "line 2"),
    "same key twice": (b"seed: 1\nseed: 2\n", "line 2"),
    "tag": (b"name: !!python/object/apply:os.getcwd []\n", "line 1: the tag"),
    "own tag": (b"name: !x y\n", "line 1: the tag"),
    "aliases": (LAUGHS.encode(), "line 2: aliases"),
    "nothing but a list": (b"- 1\n- 2\n", "expected `key: value`"),
    "two documents": (b"seed: 1\n---\nseed: 2\n", "another document"),
    "nothing but a number": (b"5\n", "expected `key: value`"),
    "nothing but a word": (b"seed\n", "expected `key: value`"),
    "a word for a number": (b"weak: {ell: x}\n", "`weak.ell`"),
    "deep": (b"name: " + b"[" * 5000 + b"\n", "nested 20 deep"),
    "long": (b"#" * 1_000_001, "at most 1000000 bytes"),
    "UTF-16": ("seed: 1".encode("utf-16"), "UTF-8"),
    "junk": (bytes(range(256)), "UTF-8"),
    "NUL": (b"name: a\0b\n", "run.yaml"),
    "interpolation": (b"name: ${oc.env:HOME}\n", "`name` must be a plain value"),
    "nested one": (b"data: {path: '${name}'}\n", "`data.path` must be a plain value"),
    "one in a list": (b"data: {columns: ['${name}']}\n", "`data.columns` must be"),
    "unknown": (b"weak: {el: 3}\n", "Did you mean `weak.ell`"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_errors_name_a_broken_settings_file(folder, capsys, case) -> None:
    content, reason = BROKEN[case]
    (folder / "run.yaml").write_bytes(content)
    assert main(["train", "run.yaml"]) == 2
    text = capsys.readouterr().err
    assert text.startswith("wpnode: error: run.yaml") and text.count("\n") == 1
    assert reason in text
    # A run folder of unknown origin gets the same error.
    (folder / "run").mkdir()
    (folder / "run/config.yaml").write_bytes(content)
    for command in (["train", "--resume", "run"], ["report", "run"]):
        assert main(command) == 2
        assert "run/config.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    "override",
    [
        "name=${oc.env:HOME}",
        "name=[",
        "name={a: 1, a: 2}",
        "name=*x",
        "name=!!python/name:os.system x",
        "data.path=a\0b.csv",
        "seed=" + "9" * 5000,
        "weak=3",
        "field.hidden=x",
    ],
)
def test_errors_name_an_override_that_is_not_a_plain_value(
    folder, capsys, override
) -> None:
    assert main(["train", override]) == 2
    text = capsys.readouterr().err
    assert text.startswith("wpnode: error: `") and text.count("\n") == 1
    assert override.split("=")[0] in text


def test_plain_settings_are_read_as_before(folder) -> None:
    (folder / "run.yaml").write_bytes(
        b"\xef\xbb\xbfoptim: {lr: 1e-3}\nname: null name\n"
    )
    config = load(RunConfig, "run.yaml", ["data.path=a b,c.csv", "weak.ell=40"])
    assert (config.optim.lr, config.name, config.weak.ell) == (1e-3, "null name", 40)
    assert config.data.path == "a b,c.csv"
    (folder / "run.yaml").write_bytes(b"")
    assert load(RunConfig, "run.yaml") == RunConfig()


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/../../x", "/etc/x", "a//b", "a\0b", "a\x1b[31m"]
)
def test_names_that_lead_out_of_the_runs_folder_are_refused(name) -> None:
    with pytest.raises(ValueError, match="`name` must be a name") as caught:
        run_folder_of(RunConfig(name=name))
    assert "\x1b" not in str(caught.value)


def test_names_inside_the_runs_folder_are_kept() -> None:
    assert str(run_folder_of(RunConfig(name="a/b.1 é")).path) == "runs/a/b.1 é"
