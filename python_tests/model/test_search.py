"""Random features as steep and as many as the data ask for."""

import math
from types import SimpleNamespace

import pytest
import torch

from problems import noisy_lorenz63
from wpnode_ext import WPNODE, load
from wpnode_ext.data import make_series
from wpnode_ext.fields import LibraryField
from wpnode_ext.model import search as feature_search
from wpnode_ext.model.choose import Choice
from wpnode_ext.model.prepare import Prepared, prepare
from wpnode_ext.model.search import solve_best
from wpnode_ext.model.solve import Solved
from wpnode_ext.settings.config import (
    ClosedFormConfig,
    FieldConfig,
    TrainConfig,
    resolve,
)

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


def prepared(v: torch.Tensor, config: TrainConfig) -> Prepared:
    return prepare(make_series(v, dt=DT), None, Choice(resolve(config), "", config))


def searched(ratio: float, config: TrainConfig, n: int = N) -> tuple[Solved, list[str]]:
    said: list[str] = []
    data = prepared(noisy_lorenz63(n, ratio)[1], config)
    return solve_best(data, None, resolve(config), say=said.append), said


def test_features_are_doubled_while_the_evidence_grows() -> None:
    (once, _), (often, said) = (searched(0.003, settings(20, n), 700) for n in (1, 2))
    assert once.config.field.features == 40
    assert often.config.field.features == 80
    assert often.config.closed_form.doublings == 0
    # The second doubling gains 20 to 52 on five draws.
    assert once.evidence is not None and often.evidence is not None
    assert often.evidence > once.evidence
    assert any("40 random features are taken" in line for line in said)


def test_fewer_features_are_enough_where_noise_hides_their_error() -> None:
    # 80 and 20 features on each of five draws.
    little, much = (searched(r, settings(20, 2), 700)[0] for r in (0.003, 0.2))
    assert much.config.field.features < little.config.field.features


def test_without_noise_the_weak_residual_decides() -> None:
    few, _ = searched(0.0, settings(4))
    assert few.evidence is None and few.lacks > 1.0
    many, said = searched(0.0, settings(4, 3))
    assert many.config.field.features > 4 and many.lacks < few.lacks / 2
    assert any("8 random features are taken" in line for line in said)


def test_features_are_not_doubled_where_more_explain_no_more() -> None:
    """Two frequencies in one variable: no field of it follows both."""
    t = DT * torch.arange(N, dtype=torch.float64)
    v = ((3 * t).sin() + (7.3 * t).sin())[:, None]
    said: list[str] = []
    config = resolve(settings(10, 3))
    found = solve_best(prepared(v, config), None, config, say=said.append)
    assert found.config.field.features == 10
    assert said[-1].startswith("20 random features are not taken")


@pytest.mark.parametrize("seed", [1, 2])
def test_flat_features_are_found_where_steep_ones_explain_noise(seed: int) -> None:
    clean, v, sigma = noisy_lorenz63(3000, 0.01, seed=seed)
    errors = []
    for steepness in (None, 1.0):
        config = resolve(settings(100, steepness=steepness))
        found = solve_best(prepared(v, config), None, config)
        assert found.refined is not None
        error = found.refined.states - clean
        errors.append(error.square().mean().sqrt().item() / sigma)
        if steepness is None:
            assert found.config.field.steepness in (0.1, 0.3)
    assert errors[0] < errors[1]


FAILS = "not finite"


@pytest.mark.parametrize(
    ("evidence", "best", "fits"),
    [
        ({0.1: 0.0, 0.3: -5.0}, 0.1, 2),
        ({0.1: 0.0, 0.3: 5.0, 1.0: 3.0}, 0.3, 3),
        ({0.1: 0.0, 0.3: 5.0, 1.0: 9.0}, 1.0, 3),
        # Without evidence features are steep.
        ({0.1: None, 1.0: None}, 1.0, 2),
        # Too many unknowns to compare.
        ({0.1: 0.0, 0.3: None}, 0.1, 2),
        # Anything is better than a field without finite steps.
        ({0.1: FAILS, 0.3: 5.0, 1.0: 3.0}, 0.3, 3),
        ({0.1: FAILS, 0.3: FAILS, 1.0: 3.0}, 1.0, 3),
        ({0.1: FAILS, 0.3: None, 1.0: None}, 0.3, 3),
        ({0.1: 0.0, 0.3: FAILS}, 0.1, 2),
    ],
)
def test_the_search_ends_where_the_evidence_falls(
    evidence: dict[float, float | str | None],
    best: float,
    fits: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = resolve(settings(10, steepness=None))
    data, tried = prepared(torch.zeros(10, 1), config), []

    def solve(data, make, config: TrainConfig, **options) -> SimpleNamespace:
        tried.append(config.field.steepness)
        known = evidence[tried[-1]]
        fails = known == FAILS
        found = SimpleNamespace(
            config=config,
            evidence=-math.inf if fails else known,
            lacks=0.0,
            complaint=FAILS if fails else "",
        )
        found.complete = lambda: found
        return found

    monkeypatch.setattr(feature_search, "solve_field", solve)
    found = solve_best(data, None, config)
    assert found.config.field.steepness == best and len(tried) == fits


def test_doublings_that_cannot_be_judged_are_said_to_be() -> None:
    """Features that are no families of the two maps: data are multiplied instead."""
    config = settings(21, 1)
    config.closed_form.symmetry = "-,-,+"
    found, said = searched(0.1, config)
    assert found.config.field.features == 21
    assert "random features are not doubled: their evidence is not known" in said


def test_without_evidence_features_are_steep() -> None:
    for ratio, more in ((0.0, {}), (0.1, {"refine": False})):
        found, _ = searched(ratio, settings(20, 2, None, **more))
        assert found.config.field.steepness == 1.0 and found.evidence is None
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
