"""Fit, forecast, score, save: behaviour a user relies on."""

import math
import re

import numpy as np
import pytest
import torch

from training_cases import DT, oscillator_data
from trajectories import normal
from wpnode_ext.data import make_series
from wpnode_ext.model.estimator import WPNODE, load
from wpnode_ext.settings.config import FieldConfig, OptimConfig, TrainConfig, WeakForm
from wpnode_ext.training import CheckpointError

LINEAR = FieldConfig(kind="library", degree=1)


def config(method: str = "weak", epochs: int = 150, **more) -> TrainConfig:
    return TrainConfig(
        method=method,  # type: ignore[arg-type]
        weak=WeakForm(p=4, ell=20, q=2),
        field=more.pop("field", LINEAR),
        optim=OptimConfig(lr=0.05, batch_size=64, epochs=epochs),
        **more,
    )


def physical(n: int = 400) -> torch.Tensor:
    """The oscillator in units far from those a network likes."""
    return 100.0 + torch.tensor([30.0, 5.0]) * oscillator_data(n, torch.float64)


@pytest.fixture(scope="module")
def fitted() -> WPNODE:
    return WPNODE(config=config()).fit(physical(), DT)


def test_forecasts_are_in_the_units_of_the_data(fitted) -> None:
    truth = physical(200)
    t = DT * torch.arange(100)
    forecast = fitted.forecast(truth[20], t)
    assert forecast.dtype == torch.float64 and forecast.shape == (100, 2)
    error = (forecast - truth[20:120]).abs().amax(0)
    assert (error < torch.tensor([0.9, 0.15])).all()  # 3 % of the amplitudes


def test_batches_of_starts_and_numpy_arrays_are_taken(fitted) -> None:
    truth = physical(50).numpy()
    together = fitted.forecast(truth[:3], DT * np.arange(10))
    assert together.shape == (10, 3, 2)
    alone = fitted.forecast(truth[1], DT * np.arange(10))
    torch.testing.assert_close(together[:, 1], alone, rtol=1e-6, atol=1e-6)


def test_score_is_high_for_the_right_field_and_low_for_a_frozen_one(fitted) -> None:
    assert fitted.score(physical(), DT) > 0.95
    frozen = WPNODE(config=config(epochs=1)).fit(physical(), DT)
    with torch.no_grad():
        frozen.field_.coefficients.zero_()
    assert frozen.score(physical(), DT) < 0.6


def test_equations_are_printed_in_the_units_of_the_data(fitted) -> None:
    # x = 100 + 30 a, y = 100 + 5 b with a' = b, b' = -a - 0.05 b.
    terms = re.findall(r"([-\d.e+]+) ?(x|y)?", fitted.equations(["x", "y"])[0][8:])
    found = {name: abs(float(value)) for value, name in terms if value not in "+-"}
    assert found["y"] == pytest.approx(6.0, rel=0.02)
    assert found[""] == pytest.approx(600.0, rel=0.02)
    with pytest.raises(TypeError, match="`field='library'`"):
        small = config(epochs=1, field=FieldConfig(hidden=[4]))
        WPNODE(config=small).fit(physical(), DT).equations()


def test_evaluation_counts_time_until_the_forecast_is_lost(fitted) -> None:
    result = fitted.evaluate(physical(300), DT, threshold=0.3, starts=10)
    assert result.unit == "units of time"
    assert result.vpt.mean == pytest.approx(75 * DT)
    assert result.u_hat.shape == (76, 10, 2)
    assert result.rmse[-1] < 0.1 < result.rmse_persistence[-1]
    assert "valid prediction time" in str(result)
    with pytest.raises(ValueError, match="longer than the horizon"):
        fitted.evaluate(physical(30), DT, horizon=10.0)


def test_a_saved_model_gives_the_same_forecasts(fitted, tmp_path) -> None:
    fitted.save(tmp_path / "model.pt")
    again = load(tmp_path / "model.pt")
    t = DT * torch.arange(20)
    u0 = physical(1)[0]
    assert torch.equal(fitted.forecast(u0, t), again.forecast(u0, t))
    assert again.config_ == fitted.config_ and again.dt_ == DT
    assert list(tmp_path.iterdir()) == [tmp_path / "model.pt"]


def test_files_that_hold_no_model_are_named_as_such(fitted, tmp_path) -> None:
    path = tmp_path / "model.pt"
    fitted.save(path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(CheckpointError, match="damaged"):
        load(path)
    path.write_text("t,x,y\n0,1,2\n")
    with pytest.raises(CheckpointError, match="not a file of wpnode_ext"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent.pt")


def test_a_users_own_field_is_trained_saved_and_given_back(tmp_path) -> None:
    class Linear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrix = torch.nn.Linear(2, 2)

        def forward(self, t, u):
            return self.matrix(u)

    model = WPNODE(field=Linear(), config=config()).fit(physical(), DT)
    assert model.score(physical(), DT) > 0.9
    model.save(tmp_path / "own.pt")
    with pytest.raises(ValueError, match="give the module as `field=`"):
        load(tmp_path / "own.pt")
    again = load(tmp_path / "own.pt", field=Linear())
    assert torch.equal(again.field_.matrix.weight, model.field_.matrix.weight)
    with pytest.raises(CheckpointError, match="do not fit"):
        load(tmp_path / "own.pt", field=torch.nn.Linear(5, 5))


def test_series_of_different_lengths_are_never_joined() -> None:
    whole = physical(600)
    pieces = [whole[:150], whole[200:290], whole[300:600]]
    model = WPNODE(config=config()).fit(pieces, DT)
    assert model.score(whole[300:], DT) > 0.9
    with pytest.raises(ValueError, match="ell"):
        WPNODE(config=config()).fit([whole[:15], whole[30:45]], DT)


def test_irregular_times_and_missing_samples_are_learned_from() -> None:
    generator = torch.Generator().manual_seed(3)
    keep = torch.rand(500, generator=generator) < 0.97
    model = WPNODE(config=config()).fit(
        physical(500)[keep], t=(DT * torch.arange(500).double())[keep]
    )
    assert model.dt_ == pytest.approx(DT)
    with_nan = physical(500)
    with_nan[~keep, 1] = math.nan
    other = WPNODE(config=config()).fit(with_nan, DT)
    for one in (model, other):
        assert one.score(physical(), DT) > 0.9


def test_inputs_drive_the_field_in_training_and_forecast() -> None:
    # x' = -x + w(t) with a square wave w, exact between switches.
    n, dt = 1200, 0.05
    waves, states = [], []
    for phase in (0, 15):
        w = 1.0 - 2.0 * (((torch.arange(n) + phase) // 40) % 2).double()
        x, level = [0.3], math.exp(-dt)
        for k in range(n - 1):
            x.append(w[k].item() + (x[-1] - w[k].item()) * level)
        waves.append(50 + 20 * w)
        states.append(7 + 2 * torch.tensor(x, dtype=torch.float64)[:, None])
    model = WPNODE(config=config(epochs=60)).fit(states, dt, forcing=waves)
    t = dt * torch.arange(100)
    forecast = model.forecast(states[0][100], t, forcing=waves[0][100:200])
    assert (forecast - states[0][100:200]).abs().max() < 0.2
    with pytest.raises(ValueError, match="trained with inputs"):
        model.forecast(states[0][0], t)
    with pytest.raises(ValueError, match="trained without inputs"):
        WPNODE(config=config(epochs=1)).fit(physical(), DT).forecast(
            physical(1)[0], t, forcing=waves[0][:100]
        )


def test_the_weak_form_is_chosen_from_the_data_unless_given() -> None:
    v = physical(600) + normal(600, 2)
    chosen = WPNODE(method="weak", epochs=1).fit(v, DT)
    assert chosen.choice_ is not None
    assert chosen.config_.weak.ell == chosen.choice_.ell
    part = WPNODE(method="wp", epochs=1, ell=12).fit(v, DT)
    assert part.config_.weak.ell == 12 and part.choice_.ell == 12
    given = WPNODE(method="weak", epochs=1, p=3, ell=14, q=5).fit(v, DT)
    assert given.choice_ is None
    assert given.config_.weak == WeakForm(p=3, ell=14, q=5)


def test_arguments_replace_the_entries_of_a_configuration() -> None:
    model = WPNODE(
        config=config(),
        method="strong",
        lam=0.1,
        window=4,
        lr=0.5,
        seed=3,
        field="conv",
    )
    used = model.config
    assert (used.method, used.lam, used.strong.window) == ("strong", 0.1, 4)
    assert (used.optim.lr, used.seed, used.field.kind) == (0.5, 3, "conv")
    assert used.optim.batch_size == 64


def test_a_held_out_series_can_be_given() -> None:
    model = WPNODE(config=config(epochs=20))
    model.fit(physical(), DT, validation=make_series(physical(200), dt=DT))
    assert any("val_error" in row for row in model.result_.history)
    short = WPNODE(config=config(epochs=20)).fit(physical(60), DT)
    assert not any("val_error" in row for row in short.result_.history)


def test_misuse_is_refused_with_the_reason(fitted) -> None:
    with pytest.raises(RuntimeError, match="not fitted; call `fit` first"):
        WPNODE().forecast(torch.zeros(2), DT * torch.arange(3))
    with pytest.raises(ValueError, match=r"`u0` must have shape \[2\]"):
        fitted.forecast(torch.zeros(3), DT * torch.arange(3))
    with pytest.raises(ValueError, match="`dt` must not be given"):
        fitted.fit(make_series(physical(), dt=DT), DT)
    with pytest.raises(ValueError, match="needs the `run` folder"):
        WPNODE(config=config()).fit(physical(), DT, resume=True)
    with pytest.raises(ValueError, match="`v` must have states with 1 axis"):
        WPNODE(config=config(epochs=1)).fit(physical(400).reshape(200, 2, 2), DT)
    with pytest.raises(TypeError, match="takes inputs"):
        net = torch.nn.Linear(2, 2)
        WPNODE(config=config(), field=net).fit(physical(), DT, forcing=physical())
