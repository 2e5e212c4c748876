"""Broken, oversized or disguised files of observations end in one line."""

import io
import os
import random
import time
import zipfile
import zlib

import numpy as np
import pytest
import torch

from wpnode_ext import load_series
from wpnode_ext.cli import main
from wpnode_ext.common import archives

SUFFIXES = (".csv", ".tsv", ".txt", ".npy", ".npz", ".pt", ".mat", ".nc", ".zarr")


def header(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    """The head of a .npy file that declares an array."""
    file = io.BytesIO()
    entries = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, entries)
    return file.getvalue()


def newest_header(descr: str) -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (2,)}}\n".encode()
    return b"\x93NUMPY\3\0" + len(text).to_bytes(4, "little") + text


def zipped(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return file.getvalue()


def saved(**arrays: object) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def torched(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


V = np.zeros((50, 2))
OBJECTS = np.array([{}, []], dtype=object)
BROKEN = {
    "open quote.csv": (b't,a\n0,"1\n1,2\n2,3\n3,4\n', "line 2: a cell must end"),
    "open quote at the end.csv": (b't,a\n0,1\n1,2\n2,"3\n', "line 4: a cell must end"),
    "long cell.csv": (b"t,a\n0," + b"1" * 200_000 + b"\n", "line 2"),
    "utf-16.csv": ("t,a\n0,1\n".encode("utf-16"), "must be a text file in UTF-8"),
    "empty.csv": (b"", "is empty"),
    "no rows.csv": (b"t,a\n", "got 0"),
    "infinite time.csv": (b"t,a\n0,1\ninf,2\n2,3\n", "must be finite"),
    "infinity.csv": (b"t,a\n0,1\n1,inf\n2,3\n3,4\n", "infinity"),
    "back in time.csv": (b"t,a\n0,1\n2,2\n1,3\n", "strictly increasing"),
    "empty dt.npz": (saved(v=V, dt=np.zeros(0)), "'dt' must be a number"),
    "dt in words.npz": (saved(v=V, dt=np.array("soon")), "'dt' must be a number"),
    "declared.npy": (header((10**15,)), "memory"),
    "short.npy": (header((1000,)) + bytes(80), "its header declares 8000 bytes"),
    "declared.npz": (zipped("v.npy", header((10**15,))), "memory"),
    "objects.npz": (saved(v=OBJECTS, dt=1.0), "it holds Python objects"),
    "objects.npy": (header((2,), "|O") + bytes(80), "it holds Python objects"),
    "objects.pt": (torched(zipfile.ZipFile), "more than numbers and plain values"),
    "objects of version 3.npy": (newest_header("|O") + bytes(80), "more than numbers"),
    "many by strides.pt": (torched(torch.zeros(1).expand(10**15)), "memory"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_errors_name_a_broken_file_and_a_remedy(folder, capsys, case) -> None:
    content, reason = BROKEN[case]
    name = case.replace(" ", "_")
    (folder / name).write_bytes(content)
    assert main(["noise", name]) == 2
    text = capsys.readouterr().err
    assert text.startswith(f"wpnode: error: {name}") and text.count("\n") == 1
    assert reason in text and "allow_pickle" not in text


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_junk_folders_and_closed_files_end_in_one_line(folder, capsys, suffix) -> None:
    rng = random.Random(suffix)
    starts = [
        b"",
        b"PK\x03\x04",
        b"\x93NUMPY\x01\x00",
        b"CDF\x01",
        b"\x89HDF\r\n\x1a\n",
    ]
    for number in range(10):
        start = starts[number % len(starts)]
        (folder / f"junk{suffix}").write_bytes(start + rng.randbytes(400))
        assert main(["noise", f"junk{suffix}"]) in (1, 2)
        text = capsys.readouterr().err
        assert f"junk{suffix}" in text and text.count("\n") == 1
    (folder / f"folder{suffix}").mkdir()
    assert main(["noise", f"folder{suffix}"]) in (1, 2)
    assert f"folder{suffix}" in capsys.readouterr().err
    if os.geteuid():
        (folder / f"junk{suffix}").chmod(0)
        assert main(["noise", f"junk{suffix}"]) in (1, 2)
        assert f"junk{suffix}" in capsys.readouterr().err


def test_archives_that_expand_too_far_are_refused(folder, monkeypatch) -> None:
    from scipy.io import savemat

    np.savez_compressed("a.npz", v=np.zeros((20_000, 10)), dt=1.0)
    torch.save(torch.zeros(20_000, 10), "a.pt")
    savemat("a.mat", {"v": np.zeros((20_000, 10)), "dt": 1.0}, do_compression=True)
    savemat("b.mat", {"v": np.zeros((20_000, 10)), "dt": 1.0})
    savemat("old.mat", {"v": np.zeros((20_000, 10)), "dt": 1.0}, format="4")
    for name in ("a.npz", "a.mat", "b.mat", "old.mat"):
        assert load_series(name).n_samples == 20_000
    monkeypatch.setattr(archives, "memory_limit", lambda: 100_000)
    for name in ("a.npz", "a.pt", "a.mat", "b.mat"):
        with pytest.raises(ValueError, match=rf"{name} declares .* GB of memory"):
            load_series(name, dt=1.0)


def test_the_limit_is_the_available_memory() -> None:
    assert 10**8 < archives.memory_limit() < 10**15


def test_matlab_files_that_expand_too_far_are_refused(tmp_path, monkeypatch) -> None:
    stream = zlib.compress(bytes(10**7))
    tag = (15).to_bytes(4, "little") + len(stream).to_bytes(4, "little")
    (tmp_path / "bomb.mat").write_bytes(b" " * 124 + b"\0\1IM" + tag + stream)
    monkeypatch.setattr(archives, "memory_limit", lambda: 10**6)
    with pytest.raises(archives.TooLargeError):
        archives.check_mat(tmp_path / "bomb.mat")


def test_wide_tables_cost_in_proportion_to_their_columns(tmp_path) -> None:
    def seconds(columns: int) -> float:
        names = ",".join(f"a{i}" for i in range(columns))
        row = ",".join(["0.5"] * columns)
        path = tmp_path / "wide.csv"
        path.write_text("\n".join([names, *[row] * 5]))
        began = time.process_time()
        assert load_series(path, dt=1.0).v.shape == (5, columns)
        return time.process_time() - began

    seconds(100)
    few, many = min(seconds(2000) for _ in range(3)), seconds(20_000)
    # Ten times as much; searching for each column among all took a hundred times.
    assert many < 40 * few


def test_control_characters_in_column_names_are_escaped(folder, capsys) -> None:
    rows = "\n".join(f"{i},{i % 7}" for i in range(60))
    (folder / "a.csv").write_text(f"t,u\x1b[31m\u202e\n{rows}\n")
    assert main(["noise", "a.csv"]) == 0
    text = capsys.readouterr().out
    assert r"u\x1b[31m\u202e" in text and "\x1b" not in text and "\u202e" not in text
    assert main(["noise", "a.csv", "--columns", "\x1b[2J"]) == 2
    text = capsys.readouterr().err
    assert r"\x1b[2J" in text and "\x1b" not in text


def test_names_of_columns_are_no_formulas_in_figures(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    from wpnode_ext.figures import filtering, save_figure

    names = ("$\\frac", "a$b$\x1b", "c")
    v = np.random.default_rng(0).normal(size=(20, 3))
    save_figure(filtering(np.arange(20.0), v, v, names=names), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_control_characters_in_arguments_are_escaped(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["noise", "a.csv", "--\x1b[2J"])
    assert "\x1b" not in capsys.readouterr().err


def test_running_out_of_memory_prints_one_line(folder, capsys, monkeypatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 7.11 PiB")

    np.savez("a.npz", v=V, dt=1.0)
    monkeypatch.setattr("wpnode_ext.cli.noise.estimate_noise", none)
    assert main(["noise", "a.npz"]) == 1
    assert "the memory is too small" in capsys.readouterr().err
