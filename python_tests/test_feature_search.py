"""Random features as steep and as many as the data ask for."""

from types import SimpleNamespace

import pytest
import torch

from problems import noisy_lorenz63
from wpnode_ext import WPNODE, load
from wpnode_ext.data import make_series
from wpnode_ext.fields import LibraryField
from wpnode_ext.training import TrainConfig, feature_search
from wpnode_ext.training.config import ClosedFormConfig, FieldConfig, resolve
from wpnode_ext.training.feature_search import Candidate, solve_best

N, DT = 1500, 0.01


def settings(
    features: int,
    doublings: int = 0,
    steepness: float | None = 1.0,
    kind="features",
    **more,
) -> TrainConfig:
    field = FieldConfig(kind=kind, features=features, steepness=steepness)
    return TrainConfig(
        method="closed_form",
        field=field,
        closed_form=ClosedFormConfig(doublings=doublings),
        **more,
    )


def searched(
    ratio: float, config: TrainConfig, n: int = N
) -> tuple[Candidate, list[str]]:
    series, said = make_series(noisy_lorenz63(n, ratio)[1], dt=DT), []
    found = solve_best(series, None, resolve(config), say=said.append)
    return Candidate(*found), said


def changes(said: list[str]) -> list[float]:
    """Of the logarithm of the evidence, one for each comparison."""
    told = [line.split("evidence ")[1] for line in said if "evidence" in line]
    return [float(rest.split(",")[0]) for rest in told]


def test_features_are_doubled_while_the_evidence_grows() -> None:
    found, said = searched(0.003, settings(5, 4))
    left = found.config.closed_form.doublings
    assert found.config.field.features == 5 * 2 ** (4 - left) > 5
    # The first doubling explains what five features cannot.
    assert changes(said)[0] > 100
    assert [change > 0 for change in changes(said)] == [True] * (4 - left) + (
        [False] if left else []
    )


def test_fewer_features_are_enough_where_noise_hides_their_error() -> None:
    little, much = (searched(ratio, settings(5, 3))[0] for ratio in (0.001, 0.2))
    assert much.config.field.features < little.config.field.features


def test_without_noise_the_weak_residual_tells() -> None:
    few, _ = searched(0.0, settings(4))
    assert few.evidence is None and few.lacks > 1.0
    many, said = searched(0.0, settings(4, 3))
    assert many.config.field.features > 4 and many.lacks < few.lacks / 2
    assert all("of what was left over" in line for line in said[-1:])


def test_what_more_features_do_not_explain_does_not_grow() -> None:
    """Two frequencies in one variable: no field of it follows both."""
    t = DT * torch.arange(N, dtype=torch.float64)
    v = ((3 * t).sin() + (7.3 * t).sin())[:, None]
    said: list[str] = []
    config = resolve(settings(10, 3))
    _, config = solve_best(make_series(v, dt=DT), None, config, say=said.append)
    assert config.field.features == 10
    assert said[-1].startswith("20 random features") and "not taken" in said[-1]


def test_flat_features_are_found_for_a_field_without_sharp_bends() -> None:
    """Steep ones of the same number give the data less evidence, and err more."""
    clean, v, sigma = noisy_lorenz63(4000, 0.02)
    series = make_series(v, dt=DT)
    errors = []
    for steepness in (None, 1.0):
        config = resolve(settings(100, steepness=steepness))
        solved, config = solve_best(series, None, config)
        states = solved.refined_states().states
        errors.append((states - clean).square().mean().sqrt().item() / sigma)
        if steepness is None:
            assert config.field.steepness in (0.1, 0.3)
    assert errors[0] < errors[1]


@pytest.mark.parametrize(
    ("evidence", "best", "fits"),
    [
        ({1.0: 0.0, 0.3: -5.0}, 1.0, 2),
        ({1.0: 0.0, 0.3: 5.0, 0.1: 3.0}, 0.3, 3),
        ({1.0: 0.0, 0.3: 5.0, 0.1: 9.0}, 0.1, 3),
        # A fit without finite steps tells that features are not to be so.
        ({1.0: None, 0.3: 5.0, 0.1: 3.0}, 0.3, 3),
        ({1.0: 0.0, 0.3: None}, 1.0, 2),
    ],
)
def test_the_search_ends_where_the_evidence_falls(
    evidence: dict[float, float | None],
    best: float,
    fits: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    series, tried = make_series(torch.zeros(10, 1), dt=DT), []

    def solve(series, make, config: TrainConfig, **options) -> SimpleNamespace:
        tried.append(config.field.steepness)
        told = evidence[tried[-1]]
        failure = "" if told is not None else "not finite"
        rounds = SimpleNamespace(evidence=told, failure=failure, history=[0])
        return SimpleNamespace(refinement=rounds, complaint=failure)

    monkeypatch.setattr(feature_search, "solve_field", solve)
    _, config = solve_best(series, None, resolve(settings(10, steepness=None)))
    assert config.field.steepness == best and len(tried) == fits


def test_where_nothing_tells_features_are_steep() -> None:
    for ratio, more in ((0.0, {}), (0.1, {"refine": False})):
        found, said = searched(ratio, settings(20, 2, None, **more))
        assert found.config.field.steepness == 1.0 and found.evidence is None
        assert not any("steepness" in line for line in said)
    assert found.config.field.features == 20 and found.lacks == 0.0


def test_a_searched_model_comes_back_from_its_file(tmp_path) -> None:
    clean, v, _ = noisy_lorenz63(N, 0.01)
    model = WPNODE(config=settings(10, 1, None)).fit(v, DT)
    chosen = model.config_
    assert chosen.field.features == 10 * 2 ** (1 - chosen.closed_form.doublings)
    assert chosen.field.steepness is not None
    model.save(tmp_path / "model.pt")
    again, t = load(tmp_path / "model.pt"), DT * torch.arange(20)
    assert again.config_ == chosen
    torch.testing.assert_close(again.forecast(clean[0], t), model.forecast(clean[0], t))


def test_only_random_features_grow() -> None:
    v = noisy_lorenz63(300, 0.0)[1]
    for config in (settings(10, -1), settings(10, 1, kind="library")):
        with pytest.raises(ValueError, match="`closed_form.doublings`"):
            WPNODE(config=config).fit(v, DT)
    own = LibraryField(3, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match="LibraryField"):
        WPNODE(config=settings(10, 1), field=own).fit(v, DT)
