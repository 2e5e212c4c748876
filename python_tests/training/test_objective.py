"""Losses of batches against the loss functions on the same samples."""

import pytest
import torch

from training_cases import DT, oscillator_data, small_config, small_field
from trajectories import normal
from wpnode_ext import WeakPlan
from wpnode_ext.data import lay_end_to_end
from wpnode_ext.settings.config import resolve
from wpnode_ext.solvers.strong import strong_loss
from wpnode_ext.training.batches import Batches
from wpnode_ext.training.objective import Objective

DOUBLE = torch.float64


def noisy(n: int) -> torch.Tensor:
    return oscillator_data(n, DOUBLE) + 0.1 * normal(n, 2)


@pytest.mark.parametrize("lengths", [[400], [200, 60, 25]])
@pytest.mark.parametrize("irregular", [False, True])
def test_terms_of_a_batch_are_those_of_the_loss_functions(lengths, irregular) -> None:
    v, n = noisy(sum(lengths)), sum(lengths)
    t = DT * torch.arange(n, dtype=DOUBLE)
    if irregular:
        t = t + 0.2 * DT * torch.rand(n, dtype=DOUBLE)
    times = {"t": t} if irregular else {"dt": DT}
    record = lay_end_to_end(v, lengths=lengths, **times)
    config = resolve(small_config("wp"))
    field = small_field().double()
    objective = Objective(field, record, config)
    f = field(0.0, v)
    for batch in Batches(record, config).epoch(1):
        weak, strong = objective(batch)
        starts = batch.segments.flatten().sort()[0]
        plan = WeakPlan(v, p=4, ell=20, starts=starts, **times)
        torch.testing.assert_close(weak, plan.loss(f))
        windows = [row[batch.windows] for row in batch.samples]
        expected = [
            strong_loss(
                field,
                v[s : s + 3],
                window=3,
                method="rk4",
                reduction="sum",
                **({"t": t[s : s + 3]} if irregular else times),
            )
            for s in torch.cat(windows).tolist()
        ]
        torch.testing.assert_close(strong, sum(expected) / (2 * len(expected)))
        total = objective.total(weak, strong)
        torch.testing.assert_close(total, weak + 0.5 * strong)


def test_each_method_has_its_own_terms() -> None:
    record = lay_end_to_end(noisy(400), dt=DT)
    field = small_field().double()
    for method in ("weak", "strong"):
        config = resolve(small_config(method))
        objective = Objective(field, record, config)
        weak, strong = objective(Batches(record, config).epoch(0)[0])
        assert (weak == 0).item() == (method == "strong")
        assert (strong == 0).item() == (method == "weak")
        total = objective.total(weak, strong)
        assert total == (weak if method == "weak" else strong)


def test_the_field_is_evaluated_once_a_sample_and_stage() -> None:
    sizes = []

    class Counting(torch.nn.Module):
        def forward(self, t, u):
            sizes.append(u.shape[:-1].numel())
            return -u

    record = lay_end_to_end(noisy(400), dt=DT)
    config = resolve(small_config("wp"))
    batch = Batches(record, config).epoch(0)[0]
    Objective(Counting(), record, config)(batch)
    assert sizes == [batch.samples.numel()] + 7 * [batch.n_windows]


def test_missing_samples_do_not_reach_the_gradients() -> None:
    v = noisy(200)
    mask = torch.zeros(200, dtype=torch.bool)
    mask[[50, 120]] = True
    v[mask] = float("nan")
    record = lay_end_to_end(v, dt=DT, mask=mask)
    config = resolve(small_config("wp"))
    field = small_field().double()
    objective = Objective(field, record, config)
    for batch in Batches(record, config).epoch(0):
        objective.total(*objective(batch)).backward()
    assert all(p.grad.isfinite().all() for p in field.parameters())
