"""What every method of comparison does alike: files, progress."""

import re
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from trajectories import normal
from wpnode_ext.baselines import Baseline, load, make_method, method_names
from wpnode_ext.baselines.methods import OWN

DT = 0.05
# Methods of comparison, and settings that keep their fits short.
SHORT: dict[str, dict[str, Any]] = {
    name: {} for name in method_names() if name not in OWN
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
    """All but the modules, which forecasts tell."""
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


def test_what_a_fit_found_is_among_them() -> None:
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
def test_progress_is_shown_where_it_is_asked_for(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    short_fit(name, verbose=False)
    assert capfd.readouterr() == ("", "")
    short_fit(name, verbose=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert re.search(r"\d+/\d+", err)
