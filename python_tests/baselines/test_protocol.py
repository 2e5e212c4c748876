"""The protocol of a folder of results, and the arguments that make one."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from wpnode_ext.baselines.comparison import read_rows, write_rows
from wpnode_ext.baselines.protocol import Protocol, agree, digest
from wpnode_ext.cli.compare import protocol_of
from wpnode_ext.cli.main import main, make_parser
from wpnode_ext.data import make_series

DT = 0.05


def oscillation(n: int) -> torch.Tensor:
    t = DT * torch.arange(n, dtype=torch.float64)
    return torch.stack([t.cos(), -t.sin()], 1)


def write_oscillation(path: Path, n: int = 600) -> Path:
    np.savez(path, v=oscillation(n).numpy(), dt=DT)
    return path


class TestProtocolFile:
    def compare(self, folder: Path, *changes: str, data: Path | None = None) -> int:
        data = data or write_oscillation(folder / "data.npz")
        arguments = ["compare", str(data), "--methods", "skiprfm", "--noise", "0"]
        arguments += ["--starts", "3", "--horizon", "2", "-o", str(folder)]
        arguments += ["--set", "skiprfm.width=20", "--set", "skiprfm.ridge=1e-8"]
        return main([*arguments, *changes])

    @pytest.mark.parametrize(
        ("changes", "told"),
        [
            (("--starts", "4"), "starts 4 (there 3)"),
            (("--horizon", "1"), "horizon 1.0 (there 2.0)"),
            (("--threshold", "0.5"), "threshold 0.5 (there 0.3)"),
            (("--lyapunov", "0.9"), "lyapunov_exponent 0.9 (there None)"),
            (("--set", "skiprfm.width=30"), "skiprfm.width 30 (there 20)"),
            (("--set", "skiprfm.jitter=0.1"), "skiprfm.jitter 0.1 (there default)"),
        ],
    )
    def test_other_settings_are_refused(self, tmp_path, capsys, changes, told) -> None:
        series = make_series(oscillation(600), dt=DT)
        protocol = Protocol(series=series, starts=3, horizon=2.0, substeps=4)
        options = {"skiprfm": {"width": 20, "ridge": 1e-8}}
        agree(tmp_path, replace(protocol, options=options), ["skiprfm"])
        assert self.compare(tmp_path, *changes) == 2
        text = capsys.readouterr().err
        assert told in text
        assert "another folder with `-o`" in text
        assert not (tmp_path / "runs.csv").exists()

    def test_another_file_of_the_same_name_is_refused(self, tmp_path, capsys) -> None:
        for number, n in enumerate((600, 500)):
            (tmp_path / str(number)).mkdir()
            data = write_oscillation(tmp_path / str(number) / "data.npz", n)
            code = self.compare(tmp_path, data=data)
            assert code == 2 * number
        assert "samples 500 (there 600), series" in capsys.readouterr().err
        assert self.compare(tmp_path, "--fresh", data=data) == 0
        assert len(read_rows(tmp_path / "runs.csv")) == 1
        assert (tmp_path / "runs.csv.old").exists()

    def test_the_digest_depends_on_values_gaps_and_times(self) -> None:
        v = oscillation(100)
        found = {digest(make_series(v, dt=DT)), digest(make_series(v, dt=2 * DT))}
        found.add(digest(make_series([v[:50], v[50:]], dt=DT)))
        found.add(digest(make_series(v.flip(0), dt=DT)))
        mask = torch.zeros(100, 2, dtype=torch.bool)
        mask[5, 1] = True
        found.add(digest(make_series(v, dt=DT, mask=mask)))
        assert len(found) == 5
        assert digest(make_series(v.clone(), dt=DT)) in found

    def test_methods_are_added_with_their_settings(self, tmp_path: Path) -> None:
        protocol = Protocol(system="lorenz63", options={"rfm": {"width": 30}})
        agree(tmp_path, protocol, ["deepskip"])
        agree(tmp_path, protocol, ["rfm"])
        text = (tmp_path / "protocol.json").read_text()
        assert json.loads(text)["options"] == {"deepskip": {}, "rfm": {"width": 30}}
        assert json.loads(text)["samples"] == 10_000
        wider = replace(protocol, options={"rfm": {"width": 40}})
        with pytest.raises(ValueError, match=r"rfm.width 40 \(there 30\)"):
            agree(tmp_path, wider, ["rfm"])
        agree(tmp_path, wider, ["deepskip"])
        assert [path.name for path in tmp_path.iterdir()] == ["protocol.json"]

    def test_entries_that_a_file_lacks_have_their_defaults(self, tmp_path) -> None:
        protocol, path = Protocol(system="lorenz63"), tmp_path / "protocol.json"
        agree(tmp_path, protocol, ["a"])
        known = json.loads(path.read_text())
        assert known.pop("substeps") == 1
        path.write_text(json.dumps(known))
        with pytest.raises(ValueError, match=r"substeps 4 \(there 1\)"):
            agree(tmp_path, replace(protocol, substeps=4), ["a"])
        agree(tmp_path, protocol, ["a"])

    def test_results_without_a_protocol_are_adopted(self, tmp_path: Path) -> None:
        row = {"method": "a", "noise": 0.1, "draw": 0, "vpt": 1.0}
        write_rows(tmp_path / "runs.csv", [row])
        agree(tmp_path, Protocol(system="lorenz63"), ["a"])
        assert len(read_rows(tmp_path / "runs.csv")) == 1
        with pytest.raises(ValueError, match="starts 5"):
            agree(tmp_path, Protocol(system="lorenz63", starts=5), ["a"])

    def test_results_without_a_protocol_had_one_step_a_sample(self, tmp_path) -> None:
        row = {"method": "a", "noise": 0.1, "draw": 0, "vpt": 1.0}
        write_rows(tmp_path / "runs.csv", [row])
        with pytest.raises(ValueError, match=r"substeps 4 \(there 1\)"):
            agree(tmp_path, Protocol(system="lorenz63", substeps=4), ["a"])


@pytest.mark.parametrize(
    ("given", "solver", "substeps"),
    [
        (["lorenz63"], "rk4", 4),
        (["kuramoto_sivashinsky"], "etdrk4", 8),
        (["kuramoto_sivashinsky", "--solver", "dopri5"], "dopri5", 1),
        (["lorenz96", "--substeps", "1"], "rk4", 1),
    ],
)
def test_stiff_systems_are_judged_by_exponential_steps(
    given: list[str], solver: str, substeps: int
) -> None:
    protocol = protocol_of(make_parser().parse_args(["compare", *given]))
    assert (protocol.solver, protocol.substeps) == (solver, substeps)


class TestArguments:
    """Options that have no effect, or would fail after the fits, are refused."""

    def compare(self, folder: Path, *changes: str) -> int:
        data = write_oscillation(folder / "data.npz", 300)
        arguments = ["compare", str(data), "--methods", "skiprfm"]
        return main([*arguments, "-o", str(folder / "out"), *changes])

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            (["d", "--samples", "9"], "`--samples` is for a system; {data} is a file"),
            (["lorenz63", "--dt", "1"], "`--dt` is for a file; lorenz63 is a system"),
            (["lorenz63", "--time", "t"], "`--time` is for a file"),
            (["lorenz63", "--reference", "x.npz"], "`--reference` is for a file"),
            (["lorenz63", "--set", "rfm.width=9"], "must be for one of the methods"),
            (["lorenz63", "--substeps", "0"], "`--substeps` must be >= 1; got 0"),
        ],
    )
    def test_options_without_effect_are_refused(
        self, tmp_path, capsys, given, told
    ) -> None:
        data = write_oscillation(tmp_path / "data.npz", 300)
        given = [str(data) if word == "d" else word for word in given]
        out = ["-o", str(tmp_path / "out")]
        assert main(["compare", *given, "--methods", "skiprfm", *out]) == 2
        assert told.format(data=data) in capsys.readouterr().err
        assert not (tmp_path / "out").exists()

    def test_references_that_do_not_fit_are_refused(self, tmp_path, capsys) -> None:
        v, path = oscillation(300).numpy(), tmp_path / "truth.npz"
        for arrays, told in (
            ({"v": v, "dt": 2 * DT}, "samples 0.05 apart, as the data have; got 0.1"),
            ({"v": v[:, :1], "dt": DT}, "states of shape [2], as the data have"),
            ({"v": v, "t": np.arange(300) ** 1.5}, "samples at equal distances"),
        ):
            np.savez(path, **arrays)
            assert self.compare(tmp_path, "--reference", str(path)) == 2
            text = capsys.readouterr().err
            assert "`--reference` must have" in text
            assert told in text
        assert not (tmp_path / "out").exists()
