"""Verdicts: fields that are good, usable, or not to be used."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from problems import lorenz63_field, noisy_lorenz63
from training_cases import COMMAND_SETTINGS, oscillator_data
from training_cases import DT as SWING
from trajectories import lorenz63
from wpnode_ext import WPNODE, load
from wpnode_ext.cli import main
from wpnode_ext.data import Series, make_series
from wpnode_ext.fields import as_field
from wpnode_ext.metrics.hidden_state import find_hidden_state
from wpnode_ext.model.solve import complaint_about
from wpnode_ext.model.verdict import PoorFit, Verdict, judge_fit

DT = 0.01


def judged(field, v: Tensor, **more) -> Verdict:
    training, held_out = make_series(v, dt=DT).split(0.2)
    return judge_fit(as_field(field), training, held_out, **more)


def lorenz(t: Tensor | float, u: Tensor) -> Tensor:
    return lorenz63_field(u)


def still(t: Tensor | float, u: Tensor) -> Tensor:
    return torch.zeros_like(u)


def noise(n: int, size: int, seed: int) -> Tensor:
    draw = np.random.default_rng(seed).standard_normal((n, size))
    return torch.from_numpy(draw)


def fitted(v: Tensor, dt: float = DT, **settings) -> WPNODE:
    quick = {"field": "library", "p": 4, "ell": 20, "q": 2, "refine": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorFit)
        return WPNODE(method="closed_form", **quick | settings).fit(v, dt=dt)


def test_the_true_field_is_good() -> None:
    verdict = judged(lorenz, lorenz63(3000, DT))
    assert verdict.grade == "good" and verdict.bounded == 1.0
    # RK4 steps of the samples err by far less than one percent of either.
    assert verdict.over_persistence > 0.99 and verdict.over_mean > 0.99


def test_noise_of_a_fifth_does_not_hide_the_true_field() -> None:
    for seed in range(3):
        _, v, _ = noisy_lorenz63(3000, 0.2, seed)
        assert judged(lorenz, v).grade == "good"


def test_forecasts_that_stand_still_save_nothing_against_persistence() -> None:
    verdict = judged(still, lorenz63(3000, DT))
    assert verdict.grade == "do not use" and verdict.over_persistence == 0.0
    assert "no better than an unchanged state" in verdict.reason
    assert verdict.better_until < verdict.lead


def test_a_field_that_explodes_after_good_short_forecasts_is_not_good() -> None:
    v = lorenz63(3000, DT)
    edge = v[:, 2].quantile(0.98)

    def pushed(t, u):
        # Beyond heights that are rarely reached it runs away.
        away = 50 * (u[..., 2:] - edge).clamp(min=0)
        return lorenz63_field(u) + torch.cat([0 * u[..., :2], away], -1)

    verdict = judged(pushed, v)
    # Every long forecast reaches this height at some time.
    assert verdict.grade == "usable" and verdict.bounded == 0
    assert "all long forecasts leave the range" in verdict.reason


def test_the_share_of_long_forecasts_that_leave_is_named() -> None:
    t = DT * torch.arange(1500, dtype=torch.float64)
    circle = torch.stack([torch.cos(3 * t), torch.sin(3 * t)], -1)
    training, held_out = make_series([circle, 2 * circle], dt=DT).split(0.3)

    def spiral(t, u):
        # The inner circle is a solution; outside of it the radius grows.
        turned = 3 * torch.stack([-u[..., 1], u[..., 0]], -1)
        return turned + 0.5 * (u.norm(dim=-1, keepdim=True) > 1.5) * u

    verdict = judge_fit(as_field(spiral), training, held_out)
    assert verdict.grade == "usable" and 0.3 < verdict.bounded < 0.7
    assert "% of the long forecasts leave the range" in verdict.reason


def test_a_field_that_is_not_finite_is_not_to_be_used() -> None:
    def broken(t, u):
        return u * math.nan

    verdict = judged(broken, lorenz63(2000, DT))
    assert verdict.grade == "do not use" and verdict.bounded == 0.0


@pytest.mark.parametrize("seed", range(4))
def test_white_noise_is_not_to_be_used(seed: int) -> None:
    model = fitted(noise(600, 2, seed), refine=True)
    assert model.verdict_.grade == "do not use"


def test_a_constant_is_not_to_be_used() -> None:
    model = fitted(torch.full((400, 2), 3.7, dtype=torch.float64))
    assert str(model.verdict_).startswith("do not use: the data do not change")


def test_noise_around_a_constant_is_not_to_be_used() -> None:
    for seed in range(3):
        model = fitted(3.7 + 0.01 * noise(600, 2, seed), refine=True)
        assert model.verdict_.grade == "do not use"


def test_a_linear_trend_is_not_good() -> None:
    t = DT * torch.arange(600, dtype=torch.float64)[:, None]
    v = t * torch.tensor([1.0, -2.0]) + 3.0
    model = fitted(v)
    assert model.verdict_.grade == "usable"
    assert "beyond the range of the training data" in model.verdict_.reason


def test_a_projection_of_a_chaotic_system_is_called_one() -> None:
    for column in (0, 2):
        model = fitted(lorenz63(4000, DT)[:, column : column + 1])
        assert model.verdict_.grade == "do not use"
        assert "observed only in part" in model.verdict_.reason


def test_the_laser_is_observed_only_in_part(shared_data) -> None:
    record = np.load(shared_data("santafe_laser/santafe_laser.npy"))[:3000]
    model = fitted(torch.from_numpy(record.astype(float)), dt=1.0)
    assert model.verdict_.grade == "do not use"
    assert "observed only in part" in model.verdict_.reason


def test_a_whole_state_is_not_called_a_part_of_one() -> None:
    for ratio in (0.0, 0.05, 0.2, 0.4):
        for seed in range(3):
            _, v, _ = noisy_lorenz63(4000, ratio, seed)
            hidden = find_hidden_state(make_series(v, dt=DT), lag=15)
            assert not hidden.likely
    for seed in range(3):
        hidden = find_hidden_state(make_series(noise(2000, 2, seed), dt=DT), lag=2)
        assert not hidden.likely


def test_data_at_rest_judge_no_forecast() -> None:
    # Ten decay times before the held-out part begins.
    v = oscillator_data(9000, torch.float64)
    model = fitted(v, SWING)
    assert model.verdict_.grade == "usable" and "at rest" in model.verdict_.reason


def test_the_field_of_the_forecasts_has_not_seen_the_held_out_data() -> None:
    """The end of the record follows another law: only a field that saw it fits."""
    v = oscillator_data(1000, torch.float64)
    bent = v.clone()
    bent[900:] = v[900:].flip(1)
    kept, whole = fitted(v, SWING), fitted(bent, SWING)
    assert kept.verdict_.held_out and whole.verdict_.held_out
    assert kept.verdict_.grade == "good" and whole.verdict_.grade == "do not use"
    seen = []

    def refit(part: Series, states: Tensor):
        seen.append((part.v, states))
        return whole.solved_.field

    replace(whole.solved_, refit=refit).without_end(0.1)
    [(part, states)] = seen
    scaled = whole.scaler_.transform(bent)
    assert torch.equal(part, scaled[:900]) and states.shape == part.shape


def test_networks_are_judged_by_the_data_they_were_not_trained_on() -> None:
    v = noise(600, 2, 0)
    with pytest.warns(PoorFit, match="should not be used: forecasts are no better"):
        model = WPNODE(method="weak", epochs=1, p=4, ell=20, q=2).fit(v, dt=DT)
    assert model.verdict_.held_out and model.verdict_.grade == "do not use"


def test_inputs_are_part_of_the_forecasts_that_are_judged() -> None:
    t = SWING * torch.arange(900, dtype=torch.float64)
    x = torch.sin(0.7 * t)
    # u' = -u + x, solved exactly.
    u = (0.7 * torch.exp(-t) + x - 0.7 * torch.cos(0.7 * t)) / (1 + 0.49)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PoorFit)
        model = WPNODE(method="closed_form", field="library", refine=False)
        model.fit(u[:, None], dt=SWING, forcing=x[:, None])
    assert model.verdict_.grade == "good" and model.verdict_.bounded is None


def test_irregular_times_are_judged() -> None:
    steps = torch.from_numpy(np.random.default_rng(0).uniform(0.5, 1.5, 900)) * DT
    times = torch.cat([torch.zeros(1), steps.cumsum(0)]).double()
    u = torch.stack([torch.cos(3 * times), torch.sin(3 * times)], -1)
    turn = torch.tensor([[0.0, -3.0], [3.0, 0.0]], dtype=torch.float64)
    training, held_out = make_series(u, t=times).split(0.3)
    verdict = judge_fit(as_field(lambda t, u: u @ turn.T), training, held_out)
    assert verdict.grade == "good"


def test_short_records_are_not_refused() -> None:
    model = fitted(oscillator_data(22, torch.float64), SWING)
    assert model.verdict_.grade in ("usable", "do not use", "good")


def test_verdicts_are_kept_in_the_file_of_the_model(tmp_path) -> None:
    model = fitted(oscillator_data(600, torch.float64), SWING)
    model.save(tmp_path / "model.pt")
    assert load(tmp_path / "model.pt").verdict_ == model.verdict_


def test_the_command_ends_with_the_verdict_and_its_exit_code(folder, capsys) -> None:
    pytest.importorskip("matplotlib")
    np.savez("good.npz", v=oscillator_data(600, torch.float64).numpy(), dt=SWING)
    np.savez("noise.npz", v=noise(400, 2, 0).numpy(), dt=SWING)
    closed = ["method=closed_form", "field.kind=library", "refine=false"]
    assert main(["train", "-q", "data.path=good.npz", "name=good", *closed]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith("good: ") and "persistence" in lines[-1]
    weak = [*COMMAND_SETTINGS, "optim.epochs=1"]
    assert main(["train", "-q", "data.path=noise.npz", "name=bad", *weak]) == 3
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-2].startswith("do not use: ")
    assert "PoorFit" not in captured.err
    assert main(["report", "runs/bad", "--no-climate", "--starts", "3"]) == 0
    page = (folder / "runs/bad/report.html").read_text()
    first = page.index("do not use: ")
    assert first < page.index("<h2>")


class Runaway(nn.Module):
    """Grows without bound."""

    def forward(self, t: Tensor | float, u: Tensor) -> Tensor:
        return 5.0 * u


def test_a_forecast_that_diverges_warns_of_the_time() -> None:
    model = fitted(oscillator_data(400, torch.float64), SWING)
    model.physical_field_ = Runaway()
    t = torch.linspace(0, 10, 101)
    with pytest.warns(RuntimeWarning, match=r"the forecast diverged at t = \d"):
        u = model.forecast([1.0, 1.0], t)
    assert not u.isfinite().all()
    with pytest.warns(RuntimeWarning, match="2 of 2 forecasts diverged"):
        model.forecast([[1.0, 1.0], [1.0, 2.0]], t)


def test_members_of_an_ensemble_that_diverge_warn_of_the_time() -> None:
    model = fitted(oscillator_data(400, torch.float64), SWING, refine=True, ensemble=2)
    t = torch.linspace(0, 10, 101)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model.forecast_ensemble([0.1, 0.1], t)
    model.members_[1] = Runaway()
    with pytest.warns(RuntimeWarning, match=r"1 of 2 members diverged at t = \d"):
        found = model.forecast_ensemble([0.1, 0.1], t)
    assert found.members[0].isfinite().all()


def test_states_that_blow_up_do_not_hide_the_misfit() -> None:
    """The misfit is measured by the spread of the data, not of the states."""
    rng = np.random.default_rng(0)
    v = torch.from_numpy(np.cumsum(rng.standard_normal((600, 2)), 0))
    model = fitted(v, refine=True)
    solved = model.solved_
    far = solved.refinement.states.clone()
    far[0] = 1e9
    blown = complaint_about(
        solved.series,
        solved.unexplained,
        replace(solved.refinement, states=far),
        solved.config.closed_form,
    )
    assert solved.complaint and blown == solved.complaint


def test_series_of_several_records_are_judged() -> None:
    whole = lorenz63(3000, DT)
    series: Series = make_series([whole[:1500], whole[1500:]], dt=DT)
    training, held_out = series.split(0.2)
    assert judge_fit(as_field(lorenz), training, held_out).grade == "good"
