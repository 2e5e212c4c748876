"""The closed form in fewer coordinates, under symmetries, from fit to file."""

from functools import lru_cache

import pytest
import torch

from problems import noisy_lorenz96
from trajectories import kuramoto_sivashinsky, lorenz63, normal
from wpnode_ext.coordinates.reduced import Coordinates
from wpnode_ext.coordinates.symmetry import Symmetry
from wpnode_ext.data import make_series
from wpnode_ext.fields import EquivariantField, LibraryField, RandomFeatureField
from wpnode_ext.model import estimator
from wpnode_ext.model.choose import Choice, Declared
from wpnode_ext.model.estimator import WPNODE
from wpnode_ext.model.export import export_field
from wpnode_ext.model.prepare import make_state_scaler, prepare, reduced_scaler
from wpnode_ext.model.solve import Solved, restricted, solve_field
from wpnode_ext.settings.config import (
    ClosedFormConfig,
    FieldConfig,
    TrainConfig,
    WeakForm,
    resolve,
)

SITES, DT, SIGMA = 32, 0.25, 0.04


@lru_cache
def waves() -> tuple[torch.Tensor, torch.Tensor]:
    """A flame front and noisy observations of it."""
    clean = kuramoto_sivashinsky(1800, DT, seed=3, points=SITES)
    noise = normal(*clean.shape, seed=0)
    return clean, clean + SIGMA * noise.double()


@lru_cache
def fitted() -> WPNODE:
    model = WPNODE(
        method="closed_form",
        field="library",
        symmetry="shifts + odd_mirror",
        coordinates="fourier",
        p=8,
        ell=30,
        q=2,
    )
    return model.fit(waves()[1], DT)


def polynomial(
    v: torch.Tensor, dt: float, degree: int, config: TrainConfig, **declared
) -> Solved:
    """A polynomial fitted in closed form."""
    config = resolve(config)
    choice = Choice(config, "", config, Declared(**declared))
    return solve_field(
        prepare(make_series(v, dt=dt), None, choice),
        lambda _, state: LibraryField(state[0], degree, dtype=torch.float64),
        config,
    )


def rms(x: torch.Tensor) -> float:
    return x.square().mean().sqrt().item()


def test_refined_states_are_in_the_units_of_the_data() -> None:
    clean, _ = waves()
    model = fitted()
    assert isinstance(model.field_, EquivariantField)
    assert model.field_.dim < SITES
    assert model.states_ is not None and model.states_std_ is not None
    assert model.states_.shape == model.states_std_.shape == clean.shape
    assert model.solved_.refinement is not None
    first = model.scaler_.inverse(model.solved_.refinement.first_states)
    # On six draws 0.09 to 0.21 sigma, the first states 0.32.
    assert rms(first - clean) < 0.4 * SIGMA
    assert rms(model.states_ - clean) < 0.27 * SIGMA
    assert model.sigma_ is not None and model.sigma_.shape == (SITES,)


def test_forecasts_commute_with_the_symmetry() -> None:
    u0, t = waves()[0][-1], DT * torch.arange(9)
    plain = fitted().forecast(u0, t)
    assert plain.shape == (9, SITES)
    for g in (Symmetry.shifts(SITES), Symmetry.mirror(SITES, sign=-1)):
        moved = fitted().forecast(g.matrices[1] @ u0, t)
        torch.testing.assert_close(moved, plain @ g.matrices[1].T, rtol=0, atol=1e-5)


def test_the_file_holds_coordinates_and_symmetry(tmp_path) -> None:
    fitted().save(tmp_path / "model.pt")
    again = estimator.load(tmp_path / "model.pt")
    u0, t = waves()[0][-3:], DT * torch.arange(5)
    torch.testing.assert_close(again.forecast(u0, t), fitted().forecast(u0, t))


def test_the_exported_field_is_that_of_the_model(tmp_path) -> None:
    export_field(fitted(), tmp_path / "field.pt2")
    field = torch.export.load(tmp_path / "field.pt2").module()
    u = waves()[0][:3]
    with torch.no_grad():
        expected = fitted().physical_field_(0.0, u)
        torch.testing.assert_close(field(torch.zeros(()).double(), u), expected)


def test_samples_with_a_missing_entry_are_left_out_of_the_coordinates() -> None:
    clean, noisy = waves()
    holed = noisy.clone()
    holed[100:110, 3] = float("nan")
    series = make_series(holed, dt=DT)
    symmetry = Symmetry.named("shifts + odd_mirror", SITES)
    scaler = reduced_scaler(series, "fourier", symmetry)
    a = scaler.transform(clean)
    assert a.isfinite().all()
    assert a.square().mean().item() == pytest.approx(1.0, rel=0.2)
    # Both phases of a wave have one scale: a shift turns one into the other.
    lengths = scaler.encode.norm(dim=1).reshape(-1, 2)
    torch.testing.assert_close(lengths[:, 0], lengths[:, 1])


def test_only_orthogonal_groups_and_families_restrict_a_field() -> None:
    stretch = torch.tensor([[0.0, 2.0], [0.5, 0.0]], dtype=torch.float64)
    field = LibraryField(2, 2, dtype=torch.float64)
    maps = Symmetry([stretch])
    assert restricted(field, maps) == (field, maps)
    swap = Symmetry.shifts(2)
    assert isinstance(restricted(field, swap)[0], EquivariantField)
    features = RandomFeatureField(2, 10)
    assert restricted(features, swap) == (features, swap)
    box = torch.ones(2)
    features.redraw(-box, box, torch.Generator().manual_seed(0), maps=swap.matrices)
    assert isinstance(restricted(features, swap)[0], EquivariantField)


@lru_cache
def lifted() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Lorenz-63 in ten entries: the truth, observations, and the directions."""
    directions = normal(10, 3, seed=5)
    clean = lorenz63(800, 0.01) @ directions.T / 10
    noise = normal(*clean.shape, seed=6)
    return clean, clean + 0.05 * noise, directions


@pytest.mark.parametrize("kind", ["pod", "matrix"])
def test_a_few_directions_are_found_or_given(kind: str, tmp_path) -> None:
    clean, v, directions = lifted()
    given = "pod" if kind == "pod" else directions
    config = TrainConfig(method="closed_form", weak=WeakForm(p=8, ell=50, q=2))
    model = WPNODE(field="library", coordinates=given, config=config).fit(v, 0.01)
    assert model.scaler_.scaled_shape((10,)) == (3,)
    assert model.states_ is not None and model.states_.shape == clean.shape
    # Three of ten directions hold signal; what is left are errors along them. On ten
    # draws they are 0.09 of the noise, with a spread of 0.01.
    assert rms(model.states_ - clean) < 0.15 * 0.05
    t = 0.01 * torch.arange(100)
    forecast = model.forecast(clean[500], t)
    assert rms(forecast[:40] - clean[500:540]) < 0.1 * clean.std()
    with pytest.raises(TypeError, match=r"in 3 coordinates.*`field_.equations\(\)`"):
        model.equations()
    model.save(tmp_path / "model.pt")
    again = estimator.load(tmp_path / "model.pt")
    torch.testing.assert_close(again.forecast(clean[500], t), forecast)


@pytest.mark.parametrize("field", ["library", "features"])
@pytest.mark.parametrize("scaler", ["identity", "minmax"])
def test_some_maps_of_a_group_are_left_to_the_data(field, scaler) -> None:
    clean, v = noisy_lorenz96(sites=8, n=300)
    symmetry, found = Symmetry.shifts(8), {}
    for part in (None, symmetry.sample(3, torch.Generator().manual_seed(0)), symmetry):
        model = WPNODE(
            method="closed_form",
            field=field,
            config=TrainConfig(field=FieldConfig(features=240)),
            symmetry=part,
            scaler=scaler,
            refine=False,
            p=4,
            ell=20,
            q=2,
        ).fit(v, 0.02)
        with torch.no_grad():
            f = model.physical_field_(0.0, clean)
            moved = [
                model.physical_field_(0.0, clean @ g.T) - f @ g.T
                for g in symmetry.matrices
            ]
        found[0 if part is None else len(part)] = rms(torch.stack(moved)) / rms(f)
    assert found[3] < 0.5 * found[0] and found[0] > 0.25
    assert found[8] < 1e-9


def test_fast_waves_without_noise_are_not_taken_for_noise() -> None:
    clean = kuramoto_sivashinsky(2000, DT, seed=3, points=SITES)
    config = TrainConfig(
        method="closed_form",
        weak=WeakForm(p=16, ell=60, q=2),
        closed_form=ClosedFormConfig(coordinates="fourier"),
    )
    found = polynomial(clean, DT, 2, config)
    # Local polynomials miss their curvature; differences of the data show no noise.
    assert found.fit.accumulate == "qr" and not found.ridge_errors
    assert found.refinement is not None and not found.refinement.history
    assert found.complaint == ""


@pytest.mark.parametrize("mixed", [True, False])
def test_coordinates_that_hardly_move_the_data_need_not_be_explained(mixed) -> None:
    t = 0.05 * torch.arange(1500, dtype=torch.float64)
    large = torch.stack([t.sin(), t.cos()], 1)
    # Three frequencies in one variable: no linear field of the three follows it.
    small = 1e-3 * sum((k * t).sin() for k in (1.7, 2.9, 4.1))
    states = torch.cat([large, small[:, None]], 1)
    turn = torch.linalg.qr(torch.ones(3, 3).double() + torch.eye(3).double()).Q
    config = TrainConfig(method="closed_form", weak=WeakForm(p=4, ell=30, q=2))
    if mixed:
        found = polynomial(states @ turn.T, 0.05, 1, config, coordinates=turn)
    else:
        found = polynomial(states, 0.05, 1, config)
    assert found.fit.relative.max() > 0.3
    assert (found.complaint == "") == mixed
    assert (found.unexplained < 0.05) == mixed


def test_a_symmetry_is_scaled_by_samples_that_are_whole() -> None:
    v = noisy_lorenz96(sites=6, n=200)[1]
    holed = v.clone()
    holed[50:60, 2] = float("nan")
    config, symmetry = TrainConfig(), Symmetry.shifts(6)
    seen = make_series(torch.cat([v[:50], v[60:]]), dt=0.02)
    one = make_state_scaler(make_series(holed, dt=0.02), config, symmetry, None)
    other = make_state_scaler(seen, config, symmetry, None)
    torch.testing.assert_close(one.shift, other.shift)
    torch.testing.assert_close(one.scale, other.scale)


def test_a_matrix_and_its_coordinates_give_one_scaler() -> None:
    series = make_series(waves()[1], dt=DT)
    matrix = Coordinates.fourier(waves()[1], [1, 2]).decode
    one = reduced_scaler(series, matrix, None)
    other = reduced_scaler(series, Coordinates.linear(matrix), None)
    torch.testing.assert_close(one.encode, other.encode)
