"""Maps keep to the distance of the samples they were trained on."""

import pytest
import torch

from wpnode_ext.baselines import RFM, SkipRFM, WeakSINDy
from wpnode_ext.data import make_series

DT = 0.05


def oscillation(n: int, dt: float = DT) -> torch.Tensor:
    t = dt * torch.arange(n, dtype=torch.float64)
    return torch.stack([t.cos(), -t.sin()], 1)


@pytest.fixture(scope="module")
def model() -> SkipRFM:
    return SkipRFM(width=40, ridge=1e-8).fit(oscillation(400), DT)


def test_maps_ignore_the_step_of_a_solver(model) -> None:
    u, how = oscillation(600), {"step": DT / 3, "seed": 1}
    found = model.evaluate(u, DT, starts=3, horizon=2.0, **how)
    assert torch.equal(found.u_hat, model.forecast(found.u[0], found.t))
    climate = model.climate(u, DT, members=3, duration=5.0, **how)
    path = model.forecast(climate.u_hat[0], climate.t)
    assert torch.equal(climate.u_hat, path)


def test_rounding_of_times_does_not_cut_a_step(model) -> None:
    u0, steps = oscillation(1)[0], torch.arange(30, dtype=torch.float64)
    exact, late = (model.forecast(u0, k * DT * steps) for k in (1, 1 + 5e-7))
    assert late == pytest.approx(exact, abs=1e-5)


def test_scores_at_another_distance_are_refused(model) -> None:
    assert model.score(oscillation(300), DT) > 0.9
    with pytest.raises(ValueError, match=r"`dt` must be 0.05.*got 0.1"):
        model.score(oscillation(300, 0.1), 0.1)
    with pytest.raises(ValueError, match="`dt` must be 0.05"):
        model.score(make_series(oscillation(300, 0.1), dt=0.1))


def test_validation_at_another_distance_is_refused() -> None:
    apart = make_series(oscillation(200, 0.1), dt=0.1)
    with pytest.raises(ValueError, match="`validation` must have samples 0.05 apart"):
        RFM(width=20).fit(oscillation(400), DT, validation=apart)
    wide = make_series(torch.zeros(200, 3), dt=DT)
    with pytest.raises(ValueError, match=r"states of shape \[2\]; got \[3\]"):
        RFM(width=20).fit(oscillation(400), DT, validation=wide)


def test_fields_are_judged_at_the_distance_of_the_validation(monkeypatch) -> None:
    seen = []
    step = WeakSINDy._step

    def watched(self, module, dt):
        seen.append(dt)
        return step(self, module, dt)

    monkeypatch.setattr(WeakSINDy, "_step", watched)
    apart = make_series(oscillation(200, 0.1), dt=0.1)
    WeakSINDy(p=4, ell=20, q=2).fit(oscillation(400), DT, validation=apart)
    assert seen == pytest.approx([0.1] * len(seen)) and seen
