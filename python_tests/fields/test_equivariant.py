"""Fields that commute with a group whatever their coefficients are."""

from typing import Any

import pytest
import torch

from problems import largest_violation, noisy_ring
from trajectories import lorenz63
from wpnode_ext.closed_form import fit_closed_form
from wpnode_ext.coordinates.reduced import Coordinates
from wpnode_ext.coordinates.symmetry import Symmetry
from wpnode_ext.data import make_series
from wpnode_ext.fields import EquivariantField, LibraryField, RandomFeatureField
from wpnode_ext.smoothing import projected_step
from wpnode_ext.smoothing.smoother import as_problem
from wpnode_ext.smoothing.steps import ModelStep

WEAK: dict[str, Any] = {"p": 4, "ell": 20, "q": 4}


def library(symmetry: Symmetry, degree: int = 2) -> EquivariantField:
    base = LibraryField(symmetry.dim, degree, dtype=torch.float64)
    return EquivariantField.of(base, symmetry.matrices)


def random_features(symmetry: Symmetry, families: int = 4) -> EquivariantField:
    base = RandomFeatureField(symmetry.dim, families * len(symmetry))
    box = 2 * torch.ones(symmetry.dim)
    generator = torch.Generator().manual_seed(0)
    base.redraw(-box, box, generator, maps=symmetry.matrices)
    return EquivariantField.of(base, symmetry.matrices)


def with_random_head(field: EquivariantField) -> EquivariantField:
    generator = torch.Generator().manual_seed(3)
    shape = field.coefficients.shape
    field.set_coefficients(torch.randn(shape, generator=generator).double())
    return field


@pytest.mark.parametrize("make", [library, random_features])
@pytest.mark.parametrize(
    "symmetry",
    [
        Symmetry.reflection([-1, -1, 1]),
        Symmetry.shifts(5) * Symmetry.mirror(5, sign=-1),
    ],
)
def test_any_coefficients_give_a_field_that_commutes(make, symmetry) -> None:
    assert largest_violation(with_random_head(make(symmetry)), symmetry) < 1e-11


def test_lorenz63_polynomials_are_counted() -> None:
    # Under (x, y, z) -> (-x, -y, z) the first two equations hold x, y, xz, yz and the
    # third 1, z, xx, xy, yy, zz.
    field = library(Symmetry.reflection([-1, -1, 1]))
    assert field.coefficients.shape == (4 + 4 + 6, 1)
    assert (field.basis != 0).sum() == 14


def test_waves_of_a_ring_are_coupled_in_triads() -> None:
    # Of shifts and the odd mirror the amplitudes of waves 1 .. 3 keep a rate each, and
    # one number for each of 1+1=2, 2-1=1, 1+2=3, 3-1=2, 3-2=1.
    coordinates = Coordinates.fourier(torch.randn(20, 16).double(), [1, 2, 3])
    symmetry = Symmetry.shifts(16) * Symmetry.mirror(16, sign=-1)
    field = library(symmetry.in_coordinates(coordinates.encode, coordinates.decode))
    assert field.n_features == 3 + 5


@pytest.mark.parametrize("make", [library, random_features])
def test_features_head_and_jacobian_agree(make) -> None:
    field = with_random_head(make(Symmetry.shifts(4)))
    u = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)).double()
    value = (field.features(u) @ field.coefficients)[..., 0]
    torch.testing.assert_close(field(0.0, u), value)
    basis = torch.randn(field.n_features, 3, dtype=torch.float64)
    torch.testing.assert_close(field.combined(u, basis), field.features(u) @ basis)
    weights = torch.tensor([0.5, 2.0, -1.0], dtype=torch.float64)
    three = field.combined(u.unflatten(0, (3, 2)), basis, weights)
    parts = field.combined(u, basis).unflatten(0, (3, 2))
    torch.testing.assert_close(three, (weights[:, None, None, None] * parts).sum(0))
    expected = torch.func.vmap(torch.func.jacrev(field.at))(u)
    torch.testing.assert_close(field.jacobian(u), expected)
    with torch.no_grad():
        torch.testing.assert_close(field(0.0, u), value)
        both = field.value_and_jacobian(u)
        torch.testing.assert_close(both, (value, expected))
        field.set_coefficients(2 * field.coefficients)
        torch.testing.assert_close(field(0.0, u), 2 * value)


@pytest.mark.parametrize("make", [library, random_features])
def test_a_prior_weighs_coefficients_as_it_weighs_the_whole_head(make) -> None:
    field = with_random_head(make(Symmetry.reflection([-1, -1, 1])))
    u = torch.randn(50, 3, generator=torch.Generator().manual_seed(1)).double()
    own = (field.coefficients[:, 0] * field.feature_sizes(u)).square().sum()
    whole = (field.head() * field.base.feature_sizes(u)[:, None]).square().sum()
    torch.testing.assert_close(own, whole / 3)


def test_a_symmetry_leaves_fewer_numbers_to_be_determined() -> None:
    u = lorenz63(800, 0.01)
    u = (u - u.mean(0) * torch.tensor([0, 0, 1])) / u.std(0)
    draw = torch.Generator().manual_seed(2)
    v = u + 0.05 * torch.randn(u.shape, generator=draw, dtype=torch.float64)
    series = make_series(v, dt=0.01)
    speed = (u[2:] - u[:-2]) / 0.02
    symmetry = Symmetry.reflection([-1, -1, 1])
    equivariant = random_features(symmetry, families=40)
    plain = equivariant.base
    assert isinstance(plain, RandomFeatureField)
    determined = []
    for field in (RandomFeatureField(3, 80), equivariant):
        if field is not equivariant:
            field.load_state_dict(plain.state_dict())
        phi = field.features(u[1:-1]).reshape(-1, field.n_features)
        wanted = speed.reshape(len(phi), -1)
        field.set_coefficients(torch.linalg.pinv(phi, rtol=1e-6) @ wanted)
        step = ModelStep(field, series.state_shape)
        problem = as_problem(series, step, 0.05, 0.005)
        determined.append(projected_step(field, problem, u / 0.05).effective)
    assert determined[1] < 0.75 * determined[0]


@pytest.mark.parametrize("accumulate", ["qr", "gram"])
def test_its_fit_is_that_of_the_whole_head_under_all_maps(accumulate) -> None:
    symmetry = Symmetry.shifts(5) * Symmetry.mirror(5, sign=-1)
    series = make_series(noisy_ring(5), dt=0.02)
    whole = LibraryField(5, 2, dtype=torch.float64)
    fit_closed_form(whole, series, ridge=0.0, symmetry=symmetry, **WEAK)
    field = library(symmetry)
    found = fit_closed_form(field, series, ridge=0.0, accumulate=accumulate, **WEAK)
    torch.testing.assert_close(field.head(), whole.coefficients, rtol=1e-6, atol=1e-7)
    assert found.n_rows == 5 * len(range(0, len(series.v) - 20, 4))


def test_bases_that_cannot_be_restricted_are_refused() -> None:
    maps = Symmetry.shifts(3).matrices
    with pytest.raises(ValueError, match="families"):
        EquivariantField.of(RandomFeatureField(3, 10), maps)
    with pytest.raises(ValueError, match="without forcing"):
        EquivariantField(LibraryField(3, 1, forcing_dim=1), torch.zeros(5, 3, 1))
