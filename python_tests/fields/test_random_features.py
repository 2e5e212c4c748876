"""Random features and ring fields against their definitions; slopes against torch."""

import itertools

import pytest
import torch

from wpnode_ext.fields import (
    Forcing,
    LibraryField,
    LinearField,
    RandomFeatureField,
    RingField,
    hit_and_run,
)


def random_head(field: LinearField, seed: int = 0) -> LinearField:
    generator = torch.Generator().manual_seed(seed)
    shape = field.coefficients.shape
    field.double().set_coefficients(torch.randn(shape, generator=generator).double())
    return field


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ([-20.0, -27.0, 1.0], [20.0, 27.0, 50.0]),
        ([2.0, 3.0, 4.0], [2.5, 9.0, 4.5]),
        ([-9.0, -8.0, -7.0], [-1.0, -2.0, -3.0]),
        ([0.0, 0.0, -1.0], [0.0, 0.0, 1.0]),
    ],
)
def test_hidden_units_stay_in_the_curved_part_at_every_corner_of_the_box(
    low: list[float], high: list[float]
) -> None:
    generator = torch.Generator().manual_seed(1)
    w, b = hit_and_run(torch.tensor(low), torch.tensor(high), 2000, generator=generator)
    sides = zip(low, high, strict=True)
    corners = torch.tensor(list(itertools.product(*sides)), dtype=torch.float64)
    inputs = (corners @ w.T + b).abs()
    assert inputs.min() >= 0.4 - 1e-12 and inputs.max() <= 3.5 + 1e-12
    # The bound is reached, not merely kept: some rows nearly touch it.
    assert inputs.max() > 3.4 and inputs.min() < 0.45


def test_steepness_shortens_the_weights_and_nothing_else() -> None:
    low, high = -torch.ones(4), 2 * torch.ones(4)
    draws = [
        hit_and_run(
            low, high, 50, steepness=share, generator=torch.Generator().manual_seed(1)
        )
        for share in (1.0, 0.25)
    ]
    (steep, bias), (flat, same) = draws
    assert torch.equal(bias, same)
    torch.testing.assert_close(flat, 0.25 * steep)
    with pytest.raises(ValueError, match="steepness"):
        hit_and_run(low, high, 5, steepness=1.5)


def test_flat_units_are_close_to_polynomials_of_low_degree() -> None:
    """The distance of the features from polynomials falls with the steepness.

    ``tanh(s w u + b)`` has terms of order s^3 beyond its second degree: a tenth of the
    steepness leaves a thousandth of them.
    """
    generator = torch.Generator().manual_seed(2)
    u = 2 * torch.rand(2000, 3, generator=generator, dtype=torch.float64) - 1
    quadratic = LibraryField(3, 2, dtype=torch.float64).features(u)
    left = []
    for steepness in (1.0, 0.1):
        field = RandomFeatureField(
            3, 100, steepness=steepness, generator=torch.Generator().manual_seed(0)
        )
        hidden = field.features(u)[:, 4:]
        fit = quadratic @ torch.linalg.lstsq(quadratic, hidden).solution
        left.append((hidden - fit).square().mean().sqrt().item())
    assert left[1] < 3e-3 * left[0]


def test_a_box_whose_corners_are_swapped_is_refused() -> None:
    with pytest.raises(ValueError, match="low <= high"):
        hit_and_run(torch.ones(2), -torch.ones(2), 3)


def test_random_features_are_one_the_state_and_the_hidden_layers() -> None:
    field = RandomFeatureField(2, 5, depth=2)
    u = torch.randn(4, 3, 2, dtype=torch.float64)
    (w_0, b_0), (w_1, b_1) = field.layers()
    first = torch.tanh(u @ w_0.T + b_0)
    second = torch.tanh(torch.cat([u, first], -1) @ w_1.T + b_1)
    expected = torch.cat([torch.ones(4, 3, 1), u, first, second], -1)
    torch.testing.assert_close(field.features(u), expected)
    random_head(field)
    torch.testing.assert_close(field(0.0, u), expected @ field.coefficients)


def test_the_same_generator_draws_the_same_layer() -> None:
    drawn = [
        RandomFeatureField(3, 7, generator=torch.Generator().manual_seed(s))
        for s in (1, 1, 2)
    ]
    rows = [field.layers()[0][0] for field in drawn]
    assert torch.equal(rows[0], rows[1]) and not torch.equal(rows[0], rows[2])


def fields_with_slopes() -> dict[str, LinearField]:
    return {
        "features": RandomFeatureField(3, 11),
        "deep features": RandomFeatureField(3, 6, depth=3),
        "library": LibraryField(3, 3),
        "constant": LibraryField(3, 0),
        "ring of features": RingField(RandomFeatureField(4, 9, outputs=1), 7),
        "ring library": RingField(LibraryField(3, 2, outputs=1), 6, (-2, -1, 1)),
    }


@pytest.mark.parametrize("name", list(fields_with_slopes()))
def test_the_jacobian_is_the_derivative_of_the_field(name: str) -> None:
    field = random_head(fields_with_slopes()[name])
    u = torch.randn(5, field.dim, dtype=torch.float64)
    expected = torch.func.vmap(torch.func.jacrev(field.at))(u)
    torch.testing.assert_close(field.jacobian(u), expected)
    torch.testing.assert_close(LinearField.jacobian(field, u), expected)
    torch.testing.assert_close(field.jacobian(u[0]), expected[0])


@pytest.mark.parametrize(
    "field",
    [
        RandomFeatureField(2, 5, forcing_dim=1),
        RandomFeatureField(2, 5, depth=2, forcing_dim=1),
        LibraryField(2, 2, forcing_dim=1),
        RingField(LibraryField(3, 2, outputs=1, forcing_dim=1), 5),
    ],
)
def test_the_jacobian_is_by_the_state_under_a_forcing(field: LinearField) -> None:
    random_head(field)
    u = torch.randn(5, field.dim, dtype=torch.float64)
    x = torch.randn(5, 1, dtype=torch.float64)
    expected = torch.func.vmap(torch.func.jacrev(field.at))(u, x)
    torch.testing.assert_close(field.jacobian(u, x), expected)
    torch.testing.assert_close(LinearField.jacobian(field, u, x), expected)


def test_inputs_of_a_ring_act_at_every_site() -> None:
    field = RingField(LibraryField(1, 1, outputs=1, forcing_dim=1), 4).double()
    field.set_coefficients(torch.tensor([[0.0], [2.0], [10.0]]))
    times = torch.tensor([0.0, 1.0], dtype=torch.float64)
    field.forcing = Forcing(times, torch.tensor([[3.0], [3.0]], dtype=torch.float64))
    u = torch.arange(4.0, dtype=torch.float64)
    torch.testing.assert_close(field(0.5, u), 2 * u + 30)


def test_a_ring_library_with_four_terms_is_lorenz_96() -> None:
    local = LibraryField(4, 2, outputs=1)
    terms = {(0, 1, 0, 1): 1.0, (1, 1, 0, 0): -1.0, (0, 0, 1, 0): -1.0}
    terms[0, 0, 0, 0] = 10.0
    with torch.no_grad():
        for exponents, value in terms.items():
            local.coefficients[local.exponents.index(exponents)] = value
    field = RingField(local, 40, (-2, -1, 0, 1)).double()
    u = 5 * torch.randn(3, 40, dtype=torch.float64)
    expected = (u.roll(-1, -1) - u.roll(2, -1)) * u.roll(1, -1) - u + 10
    torch.testing.assert_close(field(0.0, u), expected)


def test_hidden_units_are_hyperbolic_tangents() -> None:
    field = RandomFeatureField(3, 12, depth=2)
    u = torch.randn(7, 3, dtype=torch.float64)
    (w, b), (w2, b2) = field.layers()
    first = torch.tanh(u @ w.T + b)
    second = torch.tanh(torch.cat([u, first], 1) @ w2.T + b2)
    expected = torch.cat([torch.ones(7, 1).double(), u, first, second], 1)
    torch.testing.assert_close(field.features(u), expected, rtol=0, atol=1e-15)


def test_shifting_the_ring_shifts_the_field() -> None:
    field = random_head(RingField(RandomFeatureField(5, 8, outputs=1), 9))
    u = torch.randn(2, 9, dtype=torch.float64)
    torch.testing.assert_close(field(0.0, u.roll(4, -1)), field(0.0, u).roll(4, -1))


def test_a_ring_refuses_neighbours_that_coincide_and_maps_of_many_values() -> None:
    with pytest.raises(ValueError, match="different sites"):
        RingField(LibraryField(5, 1, outputs=1), 4)
    with pytest.raises(ValueError, match="outputs=1"):
        RingField(LibraryField(3, 1), 6)


@pytest.mark.parametrize(
    "field",
    [
        RandomFeatureField(3, 12),
        RandomFeatureField(3, 12, depth=2),
        RingField(RandomFeatureField(2, 8, outputs=1), 3),
        *(LibraryField(3, degree, dtype=torch.float64) for degree in range(5)),
        RingField(LibraryField(3, 2, outputs=1, dtype=torch.float64), 3),
    ],
)
@pytest.mark.parametrize("grad", [True, False])
def test_value_and_jacobian_are_those_of_the_field(
    field: LinearField, grad: bool
) -> None:
    field.set_coefficients(torch.randn_like(field.coefficients))
    u = torch.randn(5, 2, 3, dtype=torch.float64)
    with torch.set_grad_enabled(grad):
        value, slope = field.value_and_jacobian(u)
    expected = (field.features(u) @ field.coefficients).reshape(u.shape)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(field(0.0, u), expected)
    rows = torch.func.vmap(torch.func.jacrev(field.at))(u.reshape(10, 3))
    torch.testing.assert_close(slope.reshape(10, 3, 3), rows)


@torch.no_grad()
@pytest.mark.parametrize("ring", [False, True])
def test_combined_features_are_products_with_all_of_them(ring: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    field = RandomFeatureField(4, 30, outputs=1, generator=generator).double()
    if ring:
        field = RingField(field, 9).double()
    u = torch.randn(3, 700, field.dim, generator=generator, dtype=torch.float64)
    basis = torch.randn(field.n_features, 6, generator=generator, dtype=torch.float64)
    weights = torch.tensor([0.2, 0.5, -0.1], dtype=torch.float64)
    each = field.features(u) @ basis
    torch.testing.assert_close(field.combined(u[0], basis), each[0])
    expected = torch.einsum("p,p...->...", weights, each)
    torch.testing.assert_close(field.combined(u, basis, weights), expected)
