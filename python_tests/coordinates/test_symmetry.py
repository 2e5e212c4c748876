"""Groups of maps, and fields fitted under them that commute with them."""

import pytest
import torch

from problems import largest_violation, noisy_lorenz96, noisy_ring
from trajectories import lorenz63, normal
from wpnode_ext.closed_form import fit_closed_form
from wpnode_ext.coordinates.symmetry import Symmetry
from wpnode_ext.data import make_series
from wpnode_ext.fields import LibraryField, RandomFeatureField


@pytest.mark.parametrize(
    ("symmetry", "size"),
    [
        (Symmetry.reflection([-1, -1, 1]), 2),
        (Symmetry.shifts(6), 6),
        (Symmetry.shifts(6, step=2), 3),
        (Symmetry.mirror(6, sign=-1), 2),
        (Symmetry.shifts(6) * Symmetry.mirror(6, sign=-1), 12),
    ],
)
def test_a_group_has_all_products_of_its_maps(symmetry: Symmetry, size: int) -> None:
    assert len(symmetry) == size
    maps = symmetry.matrices
    torch.testing.assert_close(maps[0], torch.eye(symmetry.dim, dtype=torch.float64))
    products = (maps[:, None] @ maps).flatten(0, 1)
    distance = torch.cdist(products.flatten(1), maps.flatten(1)).amin(1)
    assert distance.max() < 1e-12


def test_shifts_and_mirrors_permute_the_sites() -> None:
    u = torch.arange(5.0, dtype=torch.float64)
    shift, mirror = Symmetry.shifts(5).matrices[1], Symmetry.mirror(5).matrices[1]
    assert (shift @ u).tolist() in (u.roll(1).tolist(), u.roll(-1).tolist())
    assert (mirror @ u).tolist() == [0, 4, 3, 2, 1]


def test_infinite_groups_and_matrices_that_are_not_square_are_refused() -> None:
    angle = torch.tensor(1.0)
    c, s = angle.cos().item(), angle.sin().item()
    with pytest.raises(ValueError, match="finite group"):
        Symmetry([torch.tensor([[c, -s], [s, c]])])
    with pytest.raises(ValueError, match="square"):
        Symmetry([torch.ones(2, 3)])


def test_a_sample_keeps_the_identity_and_repeats_nothing() -> None:
    part = Symmetry.shifts(8).sample(4, torch.Generator().manual_seed(0))
    assert len(part) == 4
    assert torch.equal(part.matrices[0], torch.eye(8, dtype=torch.float64))
    assert len({tuple(g.flatten().tolist()) for g in part.matrices}) == 4


def test_a_sample_keeps_its_whole_group_in_any_coordinates() -> None:
    whole = Symmetry.shifts(6)
    part = whole.sample(3, torch.Generator().manual_seed(1))
    assert whole.is_group and not part.is_group and whole.sample(6) is whole
    v = noisy_ring(6) + torch.arange(6.0).double()
    assert all(map(torch.equal, part.statistics(v), whole.statistics(v)))
    turn = torch.linalg.qr(normal(6, 6))[0]
    for moved in (part.scaled(*part.statistics(v)), part.in_coordinates(turn.T, turn)):
        assert len(moved) == 3 and len(moved.group) == 6 and not moved.is_group
    moved = part.in_coordinates(turn.T, turn)
    torch.testing.assert_close(turn @ moved.matrices @ turn.T, part.matrices)
    assert len(part * Symmetry.mirror(6)) == 12


def test_a_fit_under_some_maps_comes_closer_to_all_of_them() -> None:
    clean, v = noisy_lorenz96(sites=8, n=300)
    symmetry, found = Symmetry.shifts(8), {}
    for count in (1, 3, 8):
        field = LibraryField(8, 2, dtype=torch.float64)
        part = symmetry.sample(count, torch.Generator().manual_seed(0))
        series = make_series(v, dt=0.02)
        fit_closed_form(field, series, p=4, ell=20, q=2, symmetry=part)
        found[count] = largest_violation(field, symmetry, clean)
    assert found[3] < 0.3 * found[1] and found[1] > 0.5
    assert found[8] < 1e-12


@pytest.mark.parametrize("ridge", [0.0, 1e-3, "gcv"])
@pytest.mark.parametrize(
    "symmetry", [Symmetry.shifts(5), Symmetry.shifts(5) * Symmetry.mirror(5, -1)]
)
def test_a_library_fitted_under_all_maps_commutes_with_them(symmetry, ridge) -> None:
    series = make_series(noisy_ring(5), dt=0.02)
    field = LibraryField(5, 2, dtype=torch.float64)
    fit_closed_form(field, series, p=4, ell=20, q=4, ridge=ridge)
    assert largest_violation(field, symmetry) > 1e-2
    fit = fit_closed_form(
        field, series, p=4, ell=20, q=4, ridge=ridge, symmetry=symmetry
    )
    assert largest_violation(field, symmetry) < 1e-9
    assert fit.n_rows == len(symmetry) * 70


def test_features_drawn_in_families_commute_with_the_reflection_of_lorenz() -> None:
    symmetry = Symmetry.reflection([-1, -1, 1])
    v = lorenz63(800, 0.01) / 20
    field = RandomFeatureField(3, 40)
    generator = torch.Generator().manual_seed(0)
    field.redraw(v.amin(0), v.amax(0), generator, maps=symmetry.matrices)
    series = make_series(v, dt=0.01)
    fit_closed_form(field, series, ridge=1e-8)
    assert largest_violation(field, symmetry) > 1e-6
    fit_closed_form(field, series, ridge=1e-8, symmetry=symmetry)
    assert largest_violation(field, symmetry) < 1e-9


def test_families_stay_in_the_curved_part_at_all_images_of_the_data() -> None:
    symmetry = Symmetry.reflection([-1, -1, 1])
    v = lorenz63(800, 0.01)
    field = RandomFeatureField(3, 40)
    field.redraw(v.amin(0), v.amax(0), maps=symmetry.matrices)
    w, b = field.layers()[0]
    for g in symmetry.matrices:
        inputs = (v @ g.T @ w.T + b).abs()
        assert inputs.min() >= 0.4 - 1e-12 and inputs.max() <= 3.5 + 1e-12
    with pytest.raises(ValueError, match="multiple"):
        RandomFeatureField(3, 41).redraw(v.amin(0), v.amax(0), maps=symmetry.matrices)


def test_statistics_are_those_of_the_data_under_all_maps() -> None:
    symmetry = Symmetry.shifts(4) * Symmetry.mirror(4, -1)
    v = noisy_ring(4) + torch.tensor([1.0, 2.0, 3.0, -1.0])
    images = torch.cat([v @ g.T for g in symmetry.matrices])
    mean, spread = symmetry.statistics(v)
    torch.testing.assert_close(mean, images.mean(0))
    torch.testing.assert_close(spread, images.std(0, correction=0))
    scaled = symmetry.scaled(mean, spread)
    torch.testing.assert_close(
        ((v - mean) / spread) @ scaled.matrices[3].T,
        (v @ symmetry.matrices[3].T - mean) / spread,
    )


def test_a_scaling_that_the_maps_would_change_is_refused() -> None:
    symmetry = Symmetry.reflection([-1, 1])
    with pytest.raises(ValueError, match="`shift` must be .* from `statistics`"):
        symmetry.scaled(torch.tensor([1.0, 0.0]), torch.ones(2))


def test_maps_are_carried_to_coordinates_that_they_keep() -> None:
    symmetry = Symmetry.shifts(3)
    c = torch.cos(2 * torch.pi * torch.arange(3, dtype=torch.float64) / 3)
    s = torch.sin(2 * torch.pi * torch.arange(3, dtype=torch.float64) / 3)
    decode = torch.stack([c, s], 1) * (2 / 3) ** 0.5
    turned = symmetry.in_coordinates(decode.T, decode)
    a = normal(2)
    for g, h in zip(symmetry.matrices, turned.matrices, strict=True):
        torch.testing.assert_close(g @ decode @ a, decode @ h @ a)
    with pytest.raises(ValueError, match="itself"):
        symmetry.in_coordinates(torch.eye(3)[:2], torch.eye(3)[:, :2])
