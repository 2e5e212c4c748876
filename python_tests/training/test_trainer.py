"""Training: it learns, it stops, it resumes to the bit, it survives being killed."""

import math
import os
import signal
import time

import pytest
import torch

from training_cases import DT, oscillator_data, process, small_config, small_field
from wpnode_ext.data import Series, lay_end_to_end
from wpnode_ext.fields import LibraryField
from wpnode_ext.settings.config import StrongForm
from wpnode_ext.training import Session, Trainer, TrainingDiverged, checkpoint
from wpnode_ext.training.distributed import ProcessGroup
from wpnode_ext.training.log import read_metrics
from wpnode_ext.training.validation import ForecastValidation

TRUTH = torch.tensor([[0.0, 0.0], [0.0, -1.0], [1.0, -0.05]])


def record(n: int = 400) -> Series:
    return lay_end_to_end(oscillator_data(n), dt=DT)


def weights(field: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in field.parameters()])


@pytest.mark.parametrize("method", ["wp", "weak", "strong"])
def test_every_method_finds_the_coefficients_of_a_linear_system(method) -> None:
    field = LibraryField(2, 1)
    config = small_config(method, optim={"epochs": 120, "lr": 0.05})
    window = 5 if method == "strong" else 2
    config.strong = StrongForm(window=window, stride=2, solver="dopri5")
    result = Trainer(field, record(), config).run()
    # The tolerance of training in float32 with a step of 0.05.
    assert (field.coefficients - TRUTH).abs().max() < 5e-3
    assert result.history[-1]["loss"] < 1e-3 * result.history[0]["loss"]


def test_same_seed_same_bits_and_another_seed_others() -> None:
    runs = []
    for seed in (1, 1, 2):
        field = small_field()
        Trainer(field, record(), small_config(seed=seed)).run()
        runs.append(weights(field))
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])


def test_learning_rate_halves_on_a_plateau_down_to_its_minimum() -> None:
    optim = {"epochs": 12, "lr": 4e-3, "plateau_patience": 1, "min_lr": 1e-3}
    config = small_config("weak", optim=optim | {"plateau_threshold": 0.9999})
    rates = [
        row["lr"] for row in Trainer(small_field(), record(), config).run().history
    ]
    assert rates[0] == 4e-3 and rates[-1] == 1e-3
    assert set(rates) == {4e-3, 2e-3, 1e-3}


def test_training_stops_when_the_loss_stops_falling() -> None:
    config = small_config("weak", optim={"epochs": 50, "patience": 3, "min_delta": 1e3})
    result = Trainer(small_field(), record(), config).run()
    assert result.reason == "patience"
    assert result.epochs == 1 + 3


def test_the_best_weights_by_validation_are_kept() -> None:
    seen = []
    scores = iter([3.0, 1.0, 2.0, 5.0])

    def validate(field):
        seen.append(weights(field))
        return {"val_error": next(scores)}

    field, config = small_field(), small_config(optim={"epochs": 8})
    config.validation.every = 2
    result = Trainer(field, record(), config, validate=validate).run()
    assert (result.best_epoch, result.best_score) == (3, 1.0)
    assert torch.equal(weights(field), seen[1])
    judged = [row["epoch"] for row in result.history if "val_error" in row]
    assert judged == [1, 3, 5, 7]


def test_gradients_are_clipped_to_the_norm_asked_for() -> None:
    config = small_config(
        "weak", optim={"epochs": 1, "clip": 1e-3, "batch_size": 10**6}
    )
    field = small_field()
    trainer = Trainer(field, record(), config)
    trainer.run()
    norm = torch.stack([p.grad.norm() for p in field.parameters()]).norm()
    assert norm.item() == pytest.approx(1e-3, rel=1e-3)


def test_adamw_decays_weights_apart_from_the_gradient() -> None:
    results = []
    for decay in (0.0, 0.5):
        field = small_field()
        optim = {"name": "adamw", "weight_decay": decay, "epochs": 1}
        Trainer(field, record(), small_config("weak", optim=optim)).run()
        results.append(weights(field).norm())
    assert results[1] < results[0]


def test_mixed_precision_trains_the_same_problem() -> None:
    field = small_field()
    config = small_config(optim={"epochs": 20}, amp=True)
    history = Trainer(field, record(), config).run().history
    assert history[-1]["loss"] < 0.5 * history[0]["loss"]
    assert weights(field).dtype == torch.float32


@pytest.mark.slow
def test_a_compiled_field_gives_the_weights_of_an_eager_one() -> None:
    results = []
    for compiled in (False, True):
        field = small_field()
        Trainer(field, record(), small_config(compile=compiled)).run()
        assert list(field.state_dict()) == list(small_field().state_dict())
        results.append(weights(field))
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-4)


def test_divergence_stops_with_advice_and_keeps_the_last_good_checkpoint(
    tmp_path,
) -> None:
    class Fragile(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rate = torch.nn.Parameter(torch.tensor(0.5))
            self.calls = 0

        def forward(self, t, u):
            self.calls += 1
            return self.rate * u * (math.inf if self.calls > 20 else 1.0)

    config = small_config("weak", optim={"epochs": 100}, checkpoint_seconds=0.0)
    with pytest.raises(TrainingDiverged, match=r"diverged in epoch \d+.*`optim.lr`"):
        Trainer(Fragile(), record(), config, session=Session(folder=tmp_path)).run()
    state = checkpoint.load(tmp_path / "last.pt", "training")
    assert state["model"]["rate"].isfinite()
    assert state["at"]["epoch"] > 0


def test_a_field_without_parameters_cannot_be_trained() -> None:
    with pytest.raises(ValueError, match="must have parameters to train"):
        Trainer(torch.nn.Identity(), record(), small_config())


def wait_for(path, child, newer_than: int = 0) -> None:
    deadline = time.monotonic() + 60
    while not (path.exists() and path.stat().st_mtime_ns > newer_than):
        assert child.is_alive() and time.monotonic() < deadline
        time.sleep(0.001)


def test_a_run_killed_at_any_moment_ends_with_the_same_bits(tmp_path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    epochs, last = 15, broken / "last.pt"
    reference = process(whole, epochs)
    reference.join()
    assert reference.exitcode == 0
    child = process(broken, epochs)
    for number in range(3):
        wait_for(last, child, last.stat().st_mtime_ns if number else 0)
        time.sleep(0.02 * number)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert child.exitcode == -signal.SIGKILL
        assert checkpoint.load(last, "training")["at"]["epoch"] < epochs
        child = process(broken, epochs, resume=True)
    child.join()
    assert child.exitcode == 0
    kept = [checkpoint.load(f / "final.pt", "test")["model"] for f in (whole, broken)]
    assert all(torch.equal(kept[0][name], kept[1][name]) for name in kept[0])
    rows = [read_metrics(folder / "metrics.csv") for folder in (whole, broken)]
    losses = [[(row["epoch"], row["loss"]) for row in table] for table in rows]
    assert losses[0] == losses[1] and len(losses[0]) == epochs


def test_ctrl_c_saves_and_the_run_can_be_continued(tmp_path) -> None:
    child = process(tmp_path, 100_000)
    wait_for(tmp_path / "last.pt", child)
    time.sleep(0.3)
    os.kill(child.pid, signal.SIGINT)
    child.join(timeout=30)
    assert child.exitcode == 128 + signal.SIGINT
    assert "can be resumed" in (tmp_path / "log.txt").read_text()
    epoch = checkpoint.load(tmp_path / "last.pt", "training")["at"]["epoch"]
    child = process(tmp_path, epoch + 2, resume=True)
    child.join()
    assert child.exitcode == 0
    rows = read_metrics(tmp_path / "metrics.csv")
    assert [row["epoch"] for row in rows] == list(range(epoch + 2))


def test_validation_of_the_true_field_is_perfect_and_of_a_frozen_one_is_not() -> None:
    truth = LibraryField(2, 1)
    with torch.no_grad():
        truth.coefficients.copy_(TRUTH)
    validate = ForecastValidation(record(), starts=5, horizon=100)
    good, bad = validate(truth), validate(LibraryField(2, 1))
    assert good["val_error"] < 1e-4 and good["val_time"] == pytest.approx(100 * DT)
    assert bad["val_error"] > 0.5 and bad["val_time"] < 1.0
    broken = validate(lambda t, u: u * math.nan)
    assert broken == {"val_error": 1.0, "val_time": 0.0}


def test_validation_scores_maps_and_survives_their_runaways() -> None:
    turn = torch.matrix_exp(0.1 * torch.tensor([[0.0, 1.0], [-1.0, 0.0]]).double())
    u = [torch.tensor([1.0, 0.0]).double()]
    for _ in range(199):
        u.append(turn @ u[-1])
    judge = ForecastValidation(lay_end_to_end(torch.stack(u), dt=0.1), horizon=100)
    assert judge.error_of_map(lambda s: s @ turn.T) < 1e-9
    assert judge.error_of_map(lambda s: s) > 0.5
    assert judge.error_of_map(lambda s: 1e3 * s) > 0.99
    assert judge.error_of_map(lambda s: s * math.nan) == 1.0


def test_validation_fits_its_horizon_to_the_data() -> None:
    assert ForecastValidation(record(41), horizon=500).horizon == 20
    assert ForecastValidation(record(400)).horizon == 100
    with pytest.raises(ValueError, match="no two samples"):
        ForecastValidation(record(1))


@pytest.mark.parametrize("world", [1, 2])
def test_a_signal_is_heard_where_an_epoch_has_one_batch(world) -> None:
    """Also where another process of the group got it: the reduced flag counts."""

    class Heard(ProcessGroup):
        def sum(self, values):
            values[-1] += len(rows) == 2
            return values

    rows = []

    class Reporter:
        def begin(self, epoch, epochs) -> None:
            pass

        def epoch(self, row) -> None:
            rows.append(row)
            if world == 1 and len(rows) == 2:
                signal.raise_signal(signal.SIGTERM)

        def end(self, reason) -> None:
            pass

    config = small_config("weak", optim={"epochs": 20, "batch_size": 10_000})
    group = Heard() if world == 2 else ProcessGroup()
    trainer = Trainer(
        small_field(), record(), config, session=Session(Reporter(), group=group)
    )
    result = trainer.run()
    # The step that hears of it ends the epoch it belongs to.
    assert (result.reason, result.epochs, len(rows)) == ("signal", 3, 3)
    assert result.signal == signal.SIGTERM
