"""The closed form behind the estimator: choice, refined states, ensemble, fallback."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from training_cases import DT, oscillator_data
from trajectories import lorenz63, normal
from wpnode_ext.closed_form import fit_closed_form
from wpnode_ext.data import make_series
from wpnode_ext.fields import MLPField
from wpnode_ext.model.choose import choose_method
from wpnode_ext.model.ensemble import EnsembleForecast, draw_members
from wpnode_ext.model.estimator import WPNODE, load
from wpnode_ext.model.export import export_field
from wpnode_ext.model.files import read_states
from wpnode_ext.model.solve import complaint_about
from wpnode_ext.settings.config import FieldConfig, OptimConfig, TrainConfig, WeakForm
from wpnode_ext.training import TrainingDiverged
from wpnode_ext.training.run_folder import RunFolder

NOISE = 0.05


def config(**more) -> TrainConfig:
    field = more.pop("field", FieldConfig(kind="library", degree=1))
    return TrainConfig(weak=WeakForm(p=4, ell=30, q=2), field=field, **more)


def noisy(n: int = 1500, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A slowly damped oscillator in units of its own, and the same with noise."""
    clean = 10.0 + 2.0 * oscillator_data(n, torch.float64)
    noise = normal(*clean.shape, seed=seed)
    return clean, clean + 2.0 * NOISE * noise


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> WPNODE:
    folder = tmp_path_factory.mktemp("run")
    model = WPNODE(config=config(), ensemble=20).fit(noisy()[1], DT, run=folder)
    model.folder = RunFolder(folder)  # type: ignore[attr-defined]
    return model


def test_the_default_method_is_the_closed_form_and_says_why(fitted) -> None:
    assert WPNODE().config.method == "auto"
    assert fitted.config_.method == "closed_form"
    assert "linear in its coefficients" in fitted.why_


def test_refined_states_have_true_error_bars_in_the_units_of_the_data(fitted) -> None:
    clean, v = noisy()
    assert (fitted.sigma_ / (2 * NOISE) - 1).abs().max() < 0.1
    error = fitted.states_ - clean
    assert error.square().mean().sqrt() < 0.2 * 2 * NOISE
    assert 0.6 < (error / fitted.states_std_).square().mean().sqrt() < 1.6
    stored = read_states(fitted.folder.states)
    torch.testing.assert_close(stored.states, fitted.states_)
    assert len(stored.rounds) == fitted.result_.epochs
    text = fitted.folder.log.read_text()
    assert "method closed_form: the field" in text and "round 1" in text


def test_states_are_not_refined_unless_asked_for() -> None:
    plain = WPNODE(config=config(), refine=False).fit(noisy()[1], DT)
    assert plain.states_ is None and plain.result_.epochs == 0
    assert plain.score(noisy()[0], DT) > 0.8


def test_models_are_saved_with_their_ensemble_and_exported(fitted, tmp_path) -> None:
    fitted.save(tmp_path / "model.pt")
    again = load(tmp_path / "model.pt")
    t, u0 = DT * torch.arange(30), noisy()[0][5]
    assert torch.equal(again.forecast(u0, t), fitted.forecast(u0, t))
    members = again.forecast_ensemble(u0, t).members
    assert torch.equal(members, fitted.forecast_ensemble(u0, t).members)
    assert again.why_ == fitted.why_
    program = export_field(fitted, tmp_path / "field.pt2").module()
    f = program(torch.zeros(()).double(), u0[None].double())
    torch.testing.assert_close(f, fitted.physical_field_(0.0, u0[None]))


def test_features_and_a_symmetry_are_taken_from_words() -> None:
    clean = lorenz63(900, 0.02)
    model = WPNODE(
        field="features", symmetry="-,-,+", refine=False, p=8, ell=20, q=2
    ).fit(clean, 0.02)
    u = clean[::50]
    signs = torch.tensor([-1.0, -1.0, 1.0], dtype=torch.float64)
    f = model.physical_field_
    torch.testing.assert_close(f(0.0, signs * u), signs * f(0.0, u))
    with pytest.raises(ValueError, match="`symmetry` must be words"):
        WPNODE(symmetry="spiral", p=8, ell=20, q=2).fit(clean, 0.02)


def test_a_field_that_misses_the_data_gives_way_to_the_network() -> None:
    u = lorenz63(900, 0.02)
    asked = WPNODE(config=config(), method="closed_form").fit(u, 0.02)
    assert asked.config_.method == "closed_form"
    assert "is not explained" in asked.solved_.complaint
    v = u + 0.02 * u.std(0) * normal(*u.shape)
    asked = WPNODE(config=config(), method="closed_form").fit(v, 0.02)
    assert "were missed by" in asked.solved_.complaint
    settings = config(optim=OptimConfig(patience=1))
    settings.field.hidden = [8]
    fallen = WPNODE(config=settings).fit(u, 0.02)
    assert fallen.config_.method == "wp" and fallen.states_ is None
    assert isinstance(fallen.field_, MLPField)
    assert fallen.why_.startswith("the closed form was tried, but")
    # Where the network fails as well, the error has both reasons.
    settings.optim = OptimConfig(lr=1e30)
    both = "the closed form was tried, but .* then a network: .*diverged"
    with pytest.raises(TrainingDiverged, match=both):
        WPNODE(config=settings).fit(u, 0.02)


@pytest.mark.parametrize(
    ("change", "method", "why"),
    [
        ({"method": "weak"}, "weak", "as asked"),
        ({"field": FieldConfig(kind="mlp")}, "wp", "trained by gradients"),
        ({"field": FieldConfig(kind="features")}, "closed_form", "is linear in"),
        ({"field": FieldConfig()}, "closed_form", "states of 2 entries"),
    ],
)
def test_the_choice_of_method_has_a_reason(change, method: str, why: str) -> None:
    series = make_series(noisy(100)[1], dt=DT)
    found, reason = choose_method(series, config(**change))
    assert found == method and why in reason
    assert choose_method(series, config(), processes=2)[0] == "wp"
    wide = make_series(torch.randn(100, 30), dt=DT)
    assert choose_method(wide, TrainConfig())[0] == "wp"
    own = torch.nn.Linear(2, 2)
    assert choose_method(series, TrainConfig(), own)[0] == "wp"


def test_an_unstable_step_does_not_judge_a_stable_field(fitted, monkeypatch) -> None:
    """Least squares at the smoothed states take its place."""
    solved = fitted.solved_
    good = solved.without_end(0.1)

    def again(self, part, states):
        field = deepcopy(solved.field)
        # Every state grows by a factor e in a tenth of the time unit.
        field.set_coefficients(10.0 * torch.eye(3, 2, dtype=torch.float64).roll(1, 0))
        return field

    monkeypatch.setattr(type(solved.refinement), "again", again)
    found = solved.without_end(0.1)
    assert (found.coefficients - good.coefficients).abs().max() < 0.05


def test_errors_much_smaller_than_the_signal_are_no_complaint(fitted) -> None:
    found = fitted.solved_.refinement
    missed = replace(found, history=[replace(found.history[-1], held_out=5.0)])
    data, limits = fitted.solved_.series, fitted.config_.closed_form
    assert "missed by 5" in complaint_about(data, 0.0, missed, limits)
    small = replace(missed, sigma=1e-3 * found.sigma)
    assert complaint_about(data, 0.0, small, limits) == ""


def test_data_without_noise_are_fitted_with_all_digits(monkeypatch) -> None:
    monkeypatch.setattr("wpnode_ext.closed_form.fit._QR_WORK", 0.0)
    for data, expected in zip(noisy(400), ("qr", "gram"), strict=True):
        model = WPNODE(config=config(), refine=False, method="closed_form").fit(
            data, DT
        )
        assert model.solved_.fit.accumulate == expected


def test_intervals_of_ensembles_have_their_nominal_coverage() -> None:
    # Records of the same oscillator: forecasts from their last refined states.
    step = 4
    t = step * DT * torch.arange(15, dtype=torch.float64)
    truth = 10.0 + 2.0 * oscillator_data(300 + 60, torch.float64)[299:359:step]
    settings = config(method="closed_form")
    settings.closed_form.ridge = 0.0
    inside, seen, errors = [], [], []
    for draw in range(8):
        v = noisy(300, seed=10 + draw)[1]
        model = WPNODE(config=settings, ensemble=40).fit(v, DT)
        assert model.states_ is not None and model.states_std_ is not None
        assert model.sigma_ is not None
        ahead = model.forecast_ensemble(
            model.states_[-1],
            t,
            u0_std=model.states_std_[-1],
            seed=draw,
            method="rk4_classic",
        )
        low, high = ahead.interval(0.8)
        inside.append(((low <= truth) & (truth <= high)).double().mean())
        errors.append(((truth - ahead.mean) / ahead.std).square().mean())
        held_out = truth + 2.0 * NOISE * normal(15, 2, seed=100 + draw)
        low, high = ahead.interval(0.8, sigma=model.sigma_)
        seen.append(((low <= held_out) & (held_out <= high)).double().mean())
    # Errors within a record move together: it gives two numbers, those of its start.
    # Squares of 16 of them, in units of the spread, have a mean within 5.14 / 16 and
    # 34.27 / 16 in 99 of 100 cases (chi-square).
    assert 5.14 / 16 <= torch.stack(errors).mean() <= 34.27 / 16
    # Shares of single records differ by 0.2, which leaves 0.07 for the mean of eight.
    assert 0.6 <= torch.stack(inside).mean()
    # Noise is another one for every value: 240 of them tell 0.8 to 0.026; 3 of these.
    assert 0.72 <= torch.stack(seen).mean() <= 0.88


def test_blocks_are_resampled_where_there_is_no_distribution() -> None:
    settings = config()
    settings.refine = False
    model = WPNODE(config=settings, ensemble=12).fit(noisy()[1], DT)
    heads = torch.stack([next(member.parameters()) for member in model.members_])
    spread = heads.std(0)
    assert (spread > 0).all()
    found = next(model.field_.parameters())
    assert ((heads.mean(0) - found).abs() < 3 * spread).all()


def test_members_refitted_after_refinement_differ_as_the_data_allow() -> None:
    # Blocks of refined states would obey the best field, and all members be alike.
    v = noisy()[1]
    model = WPNODE(config=config()).fit(v, DT)
    found = model.solved_
    assert found.refinement is not None and found.refinement.likely is not None
    field, scaled = model.field_, found.series
    spreads = []
    for likely in (found.refinement.likely, None):
        members = draw_members(
            field,
            config(ensemble=30),
            likely=likely,
            series=scaled,
            states=found.refinement.states,
            refit=lambda member, part, states: fit_closed_form(
                member, part, states=states, p=4, ell=30, q=2
            ),
        )
        u = found.refinement.states[::20]
        values = torch.stack([member(0.0, u) for member in members])
        spreads.append(values.std(0).square().mean().sqrt().item())
    # The first solve uses less of what the data say than the refinement does.
    assert 0.5 * spreads[0] < spreads[1] < 30 * spreads[0]


def test_a_component_that_never_changes_is_no_obstacle() -> None:
    clean, v = noisy()
    still = torch.full((len(v), 1), 7.0, dtype=torch.float64)
    model = WPNODE(config=config()).fit(torch.cat([v, still], 1), DT)
    assert model.states_ is not None
    error = (model.states_[:, :2] - clean).square().mean().sqrt()
    assert error < 0.5 * (v - clean).square().mean().sqrt()
    assert (model.states_[:, 2] - 7.0).abs().max() < 1e-2


def test_statistics_of_an_ensemble_leave_out_members_that_diverged() -> None:
    members = torch.arange(5.0).double()[:, None, None].expand(5, 3, 1).clone()
    members[4, 2] = float("nan")
    found = EnsembleForecast(members, torch.arange(3).double())
    assert found.mean[:, 0].tolist() == [2.0, 2.0, 1.5]
    assert found.std[0, 0].item() == pytest.approx(2.5**0.5)
    members[1:, 2] = float("nan")
    assert EnsembleForecast(members, found.t).std[2].isnan().all()
    low, high = found.interval(0.5)
    # Six gaps are left by five numbers: half of a sixth draw falls in three of them.
    assert (low[0, 0], high[0, 0]) == (0.5, 3.5)
    assert [end[0, 0] for end in found.interval(0.9)] == [0.0, 4.0]
    with pytest.raises(ValueError, match="`level` must lie between 0 and 1"):
        found.interval(1.5)
    with pytest.raises(RuntimeError, match="fit it with `ensemble=30`"):
        WPNODE(config=config(), refine=False).fit(noisy()[1], DT).forecast_ensemble(
            noisy()[0][0], DT * torch.arange(3)
        )


def test_several_series_with_inputs_are_fitted_without_refinement() -> None:
    # x' = -x + w with w = sin t: x is known for every phase.
    t = DT * torch.arange(400, dtype=torch.float64)
    waves = [torch.sin(t + phase)[:, None] for phase in (0.0, 1.0)]
    states = [
        (torch.sin(t + phase) - torch.cos(t + phase))[:, None] / 2
        for phase in (0.0, 1.0)
    ]
    model = WPNODE(config=config(), method="closed_form")
    model.fit(states, DT, forcing=waves)
    assert model.states_ is None
    ahead = model.forecast(states[1][50], t[:100], forcing=waves[1][50:150])
    assert (ahead - states[1][50:150]).abs().max() < 1e-3
