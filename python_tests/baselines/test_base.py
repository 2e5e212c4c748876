"""The interface of all methods of comparison: registry, settings, files, progress."""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from trajectories import normal
from wpnode_ext.baselines import (
    METHODS,
    MPNODE,
    RAFDA,
    VFNODE,
    WKRR,
    Baseline,
    load,
    make_method,
)
from wpnode_ext.baselines.comparison import run_job
from wpnode_ext.baselines.protocol import Job, Protocol
from wpnode_ext.cli.main import main
from wpnode_ext.data import Series, make_series
from wpnode_ext.fields import MLPField
from wpnode_ext.training import CheckpointError

DT = 0.05
# Methods of comparison, and settings that keep their fits short.
SHORT: dict[str, dict[str, Any]] = {
    name: {} for name, entry in METHODS.items() if isinstance(entry, type)
}
for _name in ("mp_node", "mp_node_persistent"):
    SHORT[_name] = {"hidden": (6,), "epochs": 2, "windows": 3, "steps": 4}
SHORT["vf_node"] = {"hidden": (6,), "epochs": 2, "segment": 100}
SHORT["rafda"] = {"width": 20, "members": 10}
SHORT["wkrr"] = {"centres": 40}
for _name in ("rfm", "skiprfm", "deeprfm", "deepskip"):
    SHORT[_name] = {"width": 20}


def noisy(n: int = 400) -> torch.Tensor:
    t = DT * torch.arange(n, dtype=torch.float64)
    u = torch.stack([t.cos(), -t.sin()], 1)
    return u + 0.01 * normal(n, 2, seed=0)


def short_fit(name: str, **options: Any) -> Baseline:
    model = make_method(name, options=SHORT[name] | options)
    assert isinstance(model, Baseline)
    return model.fit(noisy(), DT)


def same(one: Any, other: Any) -> bool:
    """Equal to the bit, NaN included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return torch.equal(one.nan_to_num(7e77), other.nan_to_num(7e77))
    if is_dataclass(one) and is_dataclass(other):
        return same(asdict(one), asdict(other))  # type: ignore[arg-type]
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return one == other


def attributes(model: Baseline) -> dict[str, Any]:
    """All attributes but the modules, which forecasts compare."""
    modules = ("field_", "physical_field_", "scaler_")
    return {
        name: value
        for name, value in vars(model).items()
        if name not in modules and not name.startswith("_")
    }


@pytest.mark.parametrize("name", SHORT)
def test_a_file_keeps_the_whole_model(name: str, tmp_path: Path) -> None:
    model = short_fit(name)
    model.save(tmp_path / "model.pt")
    again = load(tmp_path / "model.pt")
    assert type(again) is type(model)
    t = DT * torch.arange(20)
    u0 = noisy()[:3]
    assert torch.equal(again.forecast(u0, t), model.forecast(u0, t))
    assert again.score(noisy(), DT) == model.score(noisy(), DT)
    found, kept = attributes(model), attributes(again)
    assert found.keys() == kept.keys()
    assert [key for key in found if not same(found[key], kept[key])] == []


def test_the_file_keeps_the_results_of_the_fit() -> None:
    expected = {
        "mp_node": {"starts_", "result_"},
        "vf_node": {"smoothing_", "basis_", "result_"},
        "rafda": {"states_", "ridge_"},
        "wendy": {"std_", "threshold_"},
        "wkrr": {"eps_", "ridge_"},
        "deepskip": {"ridge_", "ridge_errors_"},
    }
    for name, wanted in expected.items():
        assert wanted <= attributes(short_fit(name)).keys()


@pytest.mark.parametrize("name", SHORT)
def test_only_verbose_models_show_progress(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    short_fit(name, verbose=False)
    assert capfd.readouterr() == ("", "")
    short_fit(name, verbose=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert re.search(r"\d+/\d+", err)


@dataclass(kw_only=True, eq=False)
class StillBaseline(Baseline):
    """A method from outside the package: nothing ever changes."""

    scaler: str = "identity"  # type: ignore[assignment]

    def _learn(
        self, series: Series, validation: Series | None
    ) -> tuple[nn.Module, dict[str, Any]]:
        return self._build({"dim": series.v.shape[1]}), {"dim": series.v.shape[1]}

    @classmethod
    def _build(cls, recipe: dict[str, Any]) -> nn.Module:
        field = MLPField(recipe["dim"], (2,)).double()
        for weight in field.parameters():
            nn.init.zeros_(weight)
        return field


class TestRegistry:
    @pytest.fixture
    def still(self) -> Iterator[str]:
        METHODS.add("still", StillBaseline)
        yield "still"
        METHODS.remove("still")

    def test_a_method_from_outside_is_compared_saved_and_loaded(
        self, still: str, tmp_path: Path
    ) -> None:
        protocol = Protocol(series=make_series(noisy(), dt=DT), starts=2, horizon=1.0)
        row = run_job(Job(still, 0.0, 0), protocol)
        assert row.get("failure") is None and 0 < row["vpt"] < 1
        model = StillBaseline().fit(noisy(), DT)
        model.save(tmp_path / "model.pt")
        again = load(tmp_path / "model.pt")
        assert isinstance(again, StillBaseline)
        u = again.forecast(noisy()[0], DT * torch.arange(3))
        assert torch.equal(u[2], u[0])

    def test_the_command_compares_a_method_from_outside(
        self, still: str, tmp_path: Path
    ) -> None:
        np.savez(tmp_path / "data.npz", v=noisy().numpy(), dt=DT)
        command = ["compare", str(tmp_path / "data.npz"), "--methods", still]
        command += ["--starts", "2", "--horizon", "1", "-o", str(tmp_path)]
        assert main(command) == 0
        assert "| still | 0 % | 1 |" in (tmp_path / "table.md").read_text()

    def test_a_class_without_an_entry_cannot_be_saved(self, tmp_path: Path) -> None:
        model = StillBaseline().fit(noisy(), DT)
        with pytest.raises(ValueError, match="must be in METHODS"):
            model.save(tmp_path / "model.pt")

    def test_a_file_of_an_unknown_method_is_refused(
        self, still: str, tmp_path: Path
    ) -> None:
        StillBaseline().fit(noisy(), DT).save(tmp_path / "model.pt")
        METHODS.remove(still)
        with pytest.raises(CheckpointError, match="must be one of"):
            load(tmp_path / "model.pt")
        METHODS.add(still, StillBaseline)

    @pytest.mark.parametrize(
        ("name", "near"), [("deepskp", "deepskip"), ("closedform", "closed_form")]
    )
    def test_unknown_names_bring_the_nearest(self, name: str, near: str) -> None:
        with pytest.raises(ValueError, match=f"Did you mean '{near}'"):
            make_method(name)

    def test_unknown_settings_bring_the_nearest(self) -> None:
        with pytest.raises(ValueError, match="no setting 'members_'.*'members'"):
            make_method("rafda", options={"members_": 3})


@pytest.mark.parametrize(
    ("kind", "given", "rule"),
    [
        (WKRR, {"ridge": -1e-3}, "`ridge` must be >= 0; got -0.001"),
        (WKRR, {"eps": 0.0}, "`eps` must be > 0; got 0.0"),
        (WKRR, {"centres": 0}, "`centres` must be >= 1"),
        (RAFDA, {"members": 1}, "`members` must be >= 2; got 1"),
        (RAFDA, {"spread": -1.0}, "`spread` must be >= 0"),
        (RAFDA, {"inflation": 0.0}, "`inflation` must be > 0"),
        (VFNODE, {"segment": 1}, "`segment` must be >= 16; got 1"),
        (VFNODE, {"basis": 0}, "`basis` must be >= 1; got 0"),
        (VFNODE, {"basis_batch": 0}, "`basis_batch` must be >= 1"),
        (MPNODE, {"stages": "oto"}, "`stages` must be >= 1 or 'auto'; got 'oto'"),
        (MPNODE, {"stages": 0}, "`stages` must be >= 1; got 0"),
        (MPNODE, {"stride": 0}, "`stride` must be >= 1"),
        (MPNODE, {"windows": 0}, "`windows` must be >= 1"),
    ],
)
def test_impossible_settings_are_refused(
    kind, given: dict[str, Any], rule: str
) -> None:
    with pytest.raises(ValueError, match=rule):
        kind(**given)


def test_words_in_place_of_numbers_are_refused() -> None:
    with pytest.raises(TypeError, match="`basis` must be a number; got 'many'"):
        VFNODE(basis="many")  # type: ignore[arg-type]
    assert MPNODE(stages="auto").stages == "auto"
