"""Files are replaced as a whole, and errors name them."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wpnode_ext.common import files
from wpnode_ext.common.files import printable


def test_a_file_appears_when_it_is_whole(tmp_path) -> None:
    path = tmp_path / "deep" / "table.csv"
    files.write_text(path, "old")
    with pytest.raises(RuntimeError), files.replacing(path) as file:
        file.write("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["table.csv"]


def test_leftovers_go_and_files_being_written_stay(tmp_path) -> None:
    path = tmp_path / "table.csv"
    script = (
        "import os, signal, sys; from wpnode_ext.common.files import replacing\n"
        "with replacing(sys.argv[1]) as file:\n"
        "    file.write('half'); file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert done.returncode == -9
    assert [p.name.startswith(".table.csv.") for p in tmp_path.iterdir()] == [True]
    with files.replacing(path) as file:
        file.write("one")
        assert len(list(tmp_path.iterdir())) == 1
        files.write_text(path, "two")
    assert path.read_text() == "one" and list(tmp_path.iterdir()) == [path]


def test_a_link_stays_and_a_device_is_written_to(tmp_path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    files.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"
    files.write_text("/dev/null", "nothing")
    assert not Path("/dev/null").is_file()
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        files.write_text(tmp_path, "text")


def test_a_full_disk_is_named_with_the_file(tmp_path, monkeypatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    path = tmp_path / "table.csv"
    with pytest.raises(OSError) as caught:
        files.write_text(path, "text")
    assert files.reason_of(caught.value) == (
        f"{path}: no space left on device; make room on the disk, or write elsewhere."
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_the_command_names_the_file_a_full_disk_took(folder, capsys) -> None:
    from wpnode_ext.cli import main

    os.symlink("/dev/full", "x.csv")
    assert main(["simulate", "lorenz63", "-n", "2000", "-o", "x.csv"]) == 1
    text = capsys.readouterr().err
    assert "x.csv: no space left on device; make room" in text


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_names_no_file_can_have_are_refused(path) -> None:
    with pytest.raises(ValueError, match="`path` must"):
        files.write_text(path, "text")


def test_what_a_terminal_would_obey_is_shown() -> None:
    assert printable("u\x1b[31m\n\u202e\udcff é") == r"u\x1b[31m\n\u202e\udcff é"
    assert printable("two\nlines", keep="\n") == "two\nlines"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_output_to_a_full_disk_ends_in_one_line() -> None:
    command = [sys.executable, "-m", "wpnode_ext", "info"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "wpnode: error: no space left on device; make room on the disk, or write "
        "elsewhere.\n"
    )
