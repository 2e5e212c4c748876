"""Symmetries and fewer coordinates in training by gradients."""

from functools import lru_cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from training_cases import DT, oscillator_data, small_config, small_field
from trajectories import normal
from wpnode_ext import rollout
from wpnode_ext.coordinates.reduced import Coordinates
from wpnode_ext.coordinates.scaling import LinearScaler
from wpnode_ext.coordinates.symmetry import Symmetry
from wpnode_ext.data import lay_end_to_end
from wpnode_ext.model.estimator import WPNODE, load
from wpnode_ext.settings.config import (
    FieldConfig,
    OptimConfig,
    StrongForm,
    TrainConfig,
    ValidationConfig,
    WeakForm,
    resolve,
)
from wpnode_ext.training import Session, Trainer, checkpoint
from wpnode_ext.training.batches import Batches
from wpnode_ext.training.objective import Objective

DOUBLE = torch.float64
# Turns by a third of a circle, and their mirror image: maps that mix the entries.
THIRD = torch.tensor([[-0.5, -(0.75**0.5)], [0.75**0.5, -0.5]], dtype=DOUBLE)
TURNS = Symmetry([THIRD]) * Symmetry.reflection([1, -1])


def noisy(n: int) -> Tensor:
    noise = normal(n, 2, seed=0)
    return oscillator_data(n, DOUBLE) + 0.1 * noise.double()


def weights(field: torch.nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in field.parameters()])


@pytest.mark.parametrize("method", ["wp", "weak", "strong"])
@pytest.mark.parametrize("lengths", [[400], [200, 60, 25]])
@pytest.mark.parametrize("irregular", [False, True])
def test_the_loss_of_a_mapped_batch_is_that_of_mapped_data(
    method, lengths, irregular
) -> None:
    n = sum(lengths)
    v, t = noisy(n), DT * torch.arange(n, dtype=DOUBLE)
    t = t + 0.2 * DT * torch.rand(n, dtype=DOUBLE)
    layout = {"lengths": lengths, **({"t": t} if irregular else {"dt": DT})}
    record, config = lay_end_to_end(v, **layout), resolve(small_config(method))
    field = small_field().double()
    objective = Objective(field, record, config, TURNS)
    mapped = [
        Objective(field, lay_end_to_end(v @ g.T, **layout), config)
        for g in TURNS.matrices
    ]
    images = set()
    for epoch in range(8):
        for batch in Batches(record, config, symmetry=TURNS).epoch(epoch):
            images.add(batch.image)
            torch.testing.assert_close(objective(batch), mapped[batch.image](batch))
    assert images == set(range(6))


@pytest.mark.parametrize("method", ["weak", "strong"])
def test_samples_do_not_depend_on_the_symmetry_nor_images_on_the_process(
    method,
) -> None:
    record, config = lay_end_to_end(noisy(500), dt=DT), resolve(small_config(method))
    plain = Batches(record, config).epoch(3)
    mapped = Batches(record, config, symmetry=TURNS).epoch(3)
    shares = [
        Batches(record, config, symmetry=TURNS, rank=rank, world=2).epoch(3)
        for rank in range(2)
    ]
    assert all(batch.image == 0 for batch in plain)
    for one, other in zip(plain, mapped, strict=True):
        assert torch.equal(one.samples, other.samples)
    for share in shares:
        assert [b.image for b in share] == [b.image for b in mapped]
    counts = torch.bincount(torch.tensor([b.image for b in mapped]), minlength=6)
    assert counts.max() <= counts.min() + 1


def test_mixed_precision_does_not_round_the_data() -> None:
    record, config = (
        lay_end_to_end(noisy(400).float(), dt=DT),
        resolve(small_config("weak")),
    )
    seen = []

    def field(t: Tensor, u: Tensor) -> Tensor:
        seen.append(u)
        return -u

    objective = Objective(field, record, config, TURNS)  # type: ignore[arg-type]
    batch = Batches(record, config, symmetry=TURNS).epoch(0)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        objective(batch)
    objective(batch)
    assert seen[0].dtype == torch.float32 and torch.equal(seen[0], seen[1])


def test_an_interrupted_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    record = lay_end_to_end(noisy(400).float(), dt=DT)
    last, ends = tmp_path / "last.pt", []
    for epochs, symmetry, resume in (
        (4, TURNS, False),
        (4, None, False),
        (2, TURNS, False),
        (4, TURNS, True),
    ):
        config = small_config("wp", optim={"epochs": epochs, "refit_every": 3})
        trainer = Trainer(
            small_field(),
            record,
            config,
            symmetry=symmetry,
            session=Session(folder=tmp_path),
        )
        if resume:
            trainer.load_state_dict(checkpoint.load(last, "training"))
        result = trainer.run()
        model = checkpoint.load(last, "training")["model"]
        ends.append(torch.cat([x.flatten() for x in model.values()]))
    assert len(result.history) == 2 and torch.equal(ends[0], ends[3])
    assert not torch.equal(ends[0], ends[1]) and not torch.equal(ends[0], ends[2])


@lru_cache
def one_well() -> Tensor:
    """Orbits of ``x' = y, y' = x - x^3`` around 1; their images lie around -1."""

    def field(t: Tensor, u: Tensor) -> Tensor:
        return torch.stack([u[:, 1], u[:, 0] - u[:, 0] ** 3], 1)

    starts = torch.tensor([[1.0, 0.2], [1.0, 0.45], [1.0, 0.65]], dtype=DOUBLE)
    t = DT * torch.arange(150, dtype=DOUBLE)
    return rollout(field, starts, t).u


def well_settings(method: str, epochs: int = 150) -> TrainConfig:
    return TrainConfig(
        method=method,  # type: ignore[arg-type]
        weak=WeakForm(p=4, ell=20, q=2),
        strong=StrongForm(window=3, stride=2, solver="rk4"),
        field=FieldConfig(hidden=[16]),
        optim=OptimConfig(lr=2e-2, batch_size=100, epochs=epochs, patience=epochs),
        validation=ValidationConfig(fraction=0.0),
        seed=1,
    )


def violation(model: WPNODE, u: Tensor) -> float:
    """Of ``f(-u) = -f(u)``, relative to the size of the field."""
    with torch.no_grad():
        value, image = (model.physical_field_(0.0, x.float()) for x in (u, -u))
    return ((value + image).norm() / value.norm()).item()


@pytest.mark.parametrize("method", ["wp", "weak", "strong"])
def test_a_network_learns_its_declared_symmetry(method: str) -> None:
    u = one_well()
    found = []
    for symmetry in (None, "-,-"):
        model = WPNODE(config=well_settings(method), symmetry=symmetry)
        model.fit(list(u.unbind(1)), DT)
        found.append(violation(model, u.flatten(0, 1)))
    assert found[0] > 1.0 and found[1] < 0.1 * found[0]


def test_words_objects_and_the_file_agree(tmp_path: Path) -> None:
    u, settings = list(one_well().unbind(1)), well_settings("weak", epochs=2)
    models = [
        WPNODE(config=settings, symmetry=symmetry).fit(u, DT)
        for symmetry in ("-,-", Symmetry.reflection([-1, -1]))
    ]
    assert torch.equal(*(weights(model.field_) for model in models))
    # A shift would not commute with the reflection.
    assert models[0].scaler_.shift.abs().max() == 0
    models[1].save(tmp_path / "model.pt")
    again, t = load(tmp_path / "model.pt"), DT * torch.arange(5)
    assert torch.equal(again.forecast(u[0][0], t), models[1].forecast(u[0][0], t))


def test_a_run_of_the_estimator_is_resumed_to_the_bit(tmp_path: Path) -> None:
    u, ends = list(one_well().unbind(1)), []
    for name, epochs, resume in (("a", 4, False), ("b", 2, False), ("b", 4, True)):
        model = WPNODE(config=well_settings("wp", epochs), symmetry="-,-")
        model.fit(u, DT, run=tmp_path / name, resume=resume)
        ends.append(weights(model.field_))
    assert torch.equal(ends[0], ends[2]) and not torch.equal(ends[0], ends[1])


def test_symmetries_that_do_not_suit_the_data_are_refused() -> None:
    u, settings = one_well(), well_settings("weak", epochs=1)
    with pytest.raises(ValueError, match="maps of the 2 entries of a state; got 3 x 3"):
        WPNODE(config=settings, symmetry=Symmetry.shifts(3)).fit(u[:, 0], DT)
    with pytest.raises(ValueError, match="states of one axis"):
        WPNODE(config=settings, symmetry="shifts").fit(u, DT)


@lru_cache
def lifted() -> tuple[Tensor, Tensor]:
    """The oscillator seen through eight sensors with noise, and their directions."""
    angle = 2 * torch.pi * torch.arange(8, dtype=DOUBLE) / 8
    directions = torch.stack([angle.cos(), angle.sin()], 1)
    noise = normal(500, 8, seed=1)
    clean = 3.0 + oscillator_data(500, DOUBLE) @ directions.T
    return clean + 0.02 * noise.double(), directions


@pytest.mark.parametrize("method", ["wp", "weak", "strong"])
@pytest.mark.parametrize("kind", ["pod", "matrix", "object"])
def test_networks_are_trained_in_fewer_coordinates(method, kind, tmp_path) -> None:
    v, directions = lifted()
    coordinates = {
        "pod": "pod",
        "matrix": directions,
        "object": Coordinates.linear(directions, centre=torch.full((8,), 3.0)),
    }[kind]
    if kind == "matrix":
        v = v - 3.0
    holed = v.clone()
    holed[40, 3] = float("nan")
    settings = well_settings(method)
    settings.validation.fraction = 0.1
    model = WPNODE(config=settings, coordinates=coordinates).fit(holed, DT)
    assert isinstance(model.scaler_, LinearScaler)
    assert len(model.scaler_.encode) == 2
    t = DT * torch.arange(40)
    forecast = model.forecast(v[100], t)
    assert forecast.shape == (40, 8)
    # The signal has amplitudes of about one, the starts noise of 0.02.
    assert (forecast - v[100:140]).square().mean().sqrt() < 0.1
    assert model.score(v, DT) > 0.8
    model.save(tmp_path / "model.pt")
    torch.testing.assert_close(
        load(tmp_path / "model.pt").forecast(v[100], t), forecast
    )


def test_networks_and_states_are_refined_in_coordinates_and_under_maps() -> None:
    v, directions = lifted()
    clean = oscillator_data(250, DOUBLE) @ directions.T
    settings = well_settings("weak", epochs=20)
    settings.optim.refit_every = 10
    model = WPNODE(
        config=settings,
        refine=True,
        coordinates=directions,
        symmetry=Symmetry.shifts(8, step=4),
    ).fit(v[:250] - 3.0, DT)
    assert model.states_ is not None and model.sigma_ is not None
    assert model.sigma_.shape == (8,)
    # Of noise in eight entries a quarter of the variance lies along two directions.
    assert (model.sigma_ / 0.01 - 1).abs().max() < 0.3
    assert (model.states_ - clean).square().mean().sqrt() < 0.6 * 0.01
    assert violation(model, clean) < 0.05


def test_a_symmetry_is_learned_in_fourier_coordinates() -> None:
    v, found = one_well() @ lifted()[1].T, []
    half = Symmetry.shifts(8, step=4)
    for symmetry in (None, half):
        settings = well_settings("weak")
        model = WPNODE(config=settings, symmetry=symmetry, coordinates="fourier")
        model.fit(list(v.unbind(1)), DT)
        assert model.scaler_.scaled_shape((8,)) == (2,)
        # Half a turn changes the sign of the wave, and of nothing else.
        torch.testing.assert_close(v @ half.matrices[1].T, -v)
        found.append(violation(model, v.flatten(0, 1)))
    assert found[0] > 0.8 and found[1] < 0.25 * found[0]
