"""Random features that are doubled where the data say that they are too few."""

import pytest
import torch

from problems import noisy_lorenz63
from wpnode_ext import WPNODE, load
from wpnode_ext.data import make_series
from wpnode_ext.fields import LibraryField
from wpnode_ext.training import TrainConfig
from wpnode_ext.training.config import ClosedFormConfig, FieldConfig, resolve
from wpnode_ext.training.growth import shortfall, solve_growing

N, DT = 1500, 0.01


def settings(features: int, doublings: int, kind="features", **more) -> TrainConfig:
    return TrainConfig(
        method="closed_form",
        field=FieldConfig(kind=kind, features=features),
        closed_form=ClosedFormConfig(doublings=doublings),
        **more,
    )


def grown(ratio: float, features: int, doublings: int = 3):
    """Features in the end, what they fall short by, and what was said."""
    series, said = make_series(noisy_lorenz63(N, ratio)[1], dt=DT), []
    config = resolve(settings(features, doublings))
    solved, config = solve_growing(series, None, config, say=said.append)
    return config.field.features, shortfall(solved, series), said


def test_features_are_doubled_until_little_noise_hides_their_error() -> None:
    few, lack, _ = grown(0.003, 10, doublings=0)
    assert few == 10 and lack > 1.0
    many, rest, said = grown(0.003, 10)
    assert many > 10 and rest < min(1.0, lack / 3)
    assert any("10 random features err too much" in line for line in said)


@pytest.mark.parametrize("ratio", [0.05, 0.2])
def test_features_are_few_where_noise_hides_their_error(ratio: float) -> None:
    many, lack, said = grown(ratio, 10)
    assert many == 10 and lack < 1.0
    assert not any("random features" in line for line in said)


def test_without_noise_the_weak_residual_tells() -> None:
    few, lack, _ = grown(0.0, 4, doublings=0)
    assert lack > 1.0
    many, rest, _ = grown(0.0, 4)
    assert many > few and rest < lack / 2


def test_what_more_features_do_not_explain_does_not_grow() -> None:
    """Two frequencies in one variable: no field of it follows both."""
    t = DT * torch.arange(N, dtype=torch.float64)
    v = ((3 * t).sin() + (7.3 * t).sin())[:, None]
    said: list[str] = []
    config = resolve(settings(10, 3))
    _, config = solve_growing(make_series(v, dt=DT), None, config, say=said.append)
    assert config.field.features == 10
    assert any("20 are no better: 10 are kept" in line for line in said)


def test_a_grown_model_comes_back_from_its_file(tmp_path) -> None:
    clean, _, _ = noisy_lorenz63(N, 0.0)
    model = WPNODE(config=settings(4, 2)).fit(clean, DT)
    features = model.config_.field.features
    assert features == 4 * 2 ** (2 - model.config_.closed_form.doublings) > 4
    model.save(tmp_path / "model.pt")
    t = DT * torch.arange(20)
    torch.testing.assert_close(
        load(tmp_path / "model.pt").forecast(clean[0], t), model.forecast(clean[0], t)
    )


def test_only_random_features_grow() -> None:
    v = noisy_lorenz63(300, 0.0)[1]
    for config in (settings(10, -1), settings(10, 1, kind="library")):
        with pytest.raises(ValueError, match="`closed_form.doublings`"):
            WPNODE(config=config).fit(v, DT)
    own = LibraryField(3, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match="LibraryField"):
        WPNODE(config=settings(10, 1), field=own).fit(v, DT)


def test_states_that_are_not_refined_tell_nothing() -> None:
    series = make_series(noisy_lorenz63(N, 0.003)[1], dt=DT)
    config = resolve(settings(10, 3, refine=False))
    solved, config = solve_growing(series, None, config)
    assert config.field.features == 10 and shortfall(solved, series) == 0.0
