"""Fields against formulas written out by hand, symmetries and known systems."""

import math

import pytest
import torch

from problems import lorenz63_field
from wpnode_ext.fields import (
    AutonomousField,
    ConvField,
    Forcing,
    LibraryField,
    MLPField,
    as_field,
)


def lorenz_library() -> LibraryField:
    field = LibraryField(3, 2)
    entries = {
        (1, 0, 0): (-10.0, 28.0, 0.0),
        (0, 1, 0): (10.0, -1.0, 0.0),
        (0, 0, 1): (0.0, 0.0, -8 / 3),
        (1, 0, 1): (0.0, -1.0, 0.0),
        (1, 1, 0): (0.0, 0.0, 1.0),
    }
    with torch.no_grad():
        for exponents, row in entries.items():
            field.coefficients[field.exponents.index(exponents)] = torch.tensor(row)
    return field


def test_mlp_is_the_composition_of_its_layers() -> None:
    field = MLPField(2, (3,), activation="tanh")
    first, last = field.net[0], field.net[2]
    u = torch.randn(5, 4, 2)
    expected = torch.tanh(u @ first.weight.T + first.bias) @ last.weight.T + last.bias
    torch.testing.assert_close(field(0.0, u), expected)


def test_presets_have_the_widths_of_the_paper() -> None:
    small, large = MLPField.preset("2x200", 3), MLPField.preset("2x400", 64)
    count = [sum(p.numel() for p in field.parameters()) for field in (small, large)]
    assert count == [
        3 * 200 + 200 + 200 * 201 + 3 * 201,
        400 * 65 + 400 * 401 + 64 * 401,
    ]
    assert any(isinstance(layer, torch.nn.GELU) for layer in small.net)


def test_a_generator_fixes_the_initial_weights() -> None:
    fields = [
        MLPField(3, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    ]
    rows = [torch.cat([p.flatten() for p in f.parameters()]) for f in fields]
    assert torch.equal(rows[0], rows[1]) and not torch.equal(rows[0], rows[2])
    assert fields[0].net[0].weight.abs().max() <= 1 / math.sqrt(3)


@pytest.mark.parametrize("kernels", [(5, 1, 1), (3, 3, 3)])
def test_shifting_the_ring_shifts_the_convolutional_field(kernels) -> None:
    field = ConvField(width=8, kernels=kernels).double()
    u = torch.randn(4, 11, dtype=torch.float64)
    shifted = field(0.0, u.roll(3, -1))
    torch.testing.assert_close(shifted, field(0.0, u).roll(3, -1))


def test_a_site_depends_on_neighbours_within_reach_only() -> None:
    field = ConvField(width=4, kernels=(5, 1)).double()
    u = torch.randn(12, dtype=torch.float64)
    jacobian = torch.func.jacrev(lambda u: field(0.0, u))(u)
    distance = (torch.arange(12)[:, None] - torch.arange(12)).abs()
    distance = torch.minimum(distance, 12 - distance)
    assert (jacobian[distance > 2] == 0).all()
    assert (jacobian[distance <= 2] != 0).all()


def test_convolution_takes_several_channels_and_any_leading_axes() -> None:
    field = ConvField(channels=2, width=4, forcing_dim=1)
    field.forcing = Forcing(torch.tensor([0.0, 1.0]), torch.tensor([[0.0], [2.0]]))
    u = torch.randn(3, 5, 2, 9)
    out = field(0.5, u)
    assert out.shape == u.shape
    torch.testing.assert_close(out[1, 2], field(0.5, u[1, 2]))


def test_library_with_the_right_coefficients_is_lorenz() -> None:
    u = 10 * torch.randn(7, 2, 3)
    torch.testing.assert_close(lorenz_library()(0.0, u), lorenz63_field(u))


def test_library_has_every_monomial_once() -> None:
    field = LibraryField(4, 3)
    assert len(field.exponents) == math.comb(4 + 3, 3) == len(set(field.exponents))
    assert all(sum(row) <= 3 for row in field.exponents)
    z = torch.rand(6, 4, dtype=torch.float64)
    expected = torch.stack(
        [(z ** torch.tensor(row)).prod(-1) for row in field.exponents], dim=-1
    )
    torch.testing.assert_close(field.features(z), expected)


def test_library_with_inputs_is_its_monomials_times_its_coefficients() -> None:
    field = LibraryField(2, 3, forcing_dim=2, dtype=torch.float64)
    field.set_coefficients(torch.randn_like(field.coefficients))
    u, x = torch.randn(2, 7, 2, dtype=torch.float64)
    terms = [
        torch.stack([z**e for z, e in zip(torch.cat([u, x], 1).T, row, strict=True)])
        for row in field.exponents
    ]
    monomials = torch.stack([term.prod(0) for term in terms], 1)
    torch.testing.assert_close(field.at(u, x), monomials @ field.coefficients)


def test_equations_are_printed_with_names_and_without_noise() -> None:
    field = lorenz_library()
    with torch.no_grad():
        field.coefficients[0, 0] = 1e-7
    assert field.equations(["x", "y", "z"]) == [
        "dx/dt = -10 x + 10 y",
        "dy/dt = 28 x - 1 y - 1 x z",
        "dz/dt = -2.667 z + 1 x y",
    ]
    assert LibraryField(1, 0).equations() == ["du0/dt = 0"]


def test_change_of_coordinates_gives_the_polynomial_back() -> None:
    scale = torch.tensor([40.0, 50.0, 45.0], dtype=torch.float64)
    shift = torch.tensor([-20.0, -25.0, 1.0], dtype=torch.float64)
    field = lorenz_library().double()
    scaled = field.in_coordinates(1 / scale, -shift / scale)
    u = 10 * torch.randn(20, 3, dtype=torch.float64)
    torch.testing.assert_close(scaled(0.0, (u - shift) / scale) * scale, field(0.0, u))
    back = scaled.in_coordinates(scale, shift)
    torch.testing.assert_close(back.coefficients, field.coefficients, atol=1e-9, rtol=0)


def test_forcing_is_linear_between_its_times_and_keeps_late_times_apart() -> None:
    t = 1e5 + 0.01 * torch.arange(5, dtype=torch.float64)
    forcing = Forcing(t, torch.stack([t - 1e5, 1 - (t - 1e5)], dim=-1).float())
    asked = 1e5 + torch.tensor([0.0025, 0.0175, 0.04], dtype=torch.float64)
    expected = torch.stack([asked - 1e5, 1 - (asked - 1e5)], dim=-1).float()
    torch.testing.assert_close(forcing(asked), expected, atol=1e-7, rtol=1e-5)


def test_forced_fields_take_a_time_for_each_member_or_one_for_all() -> None:
    field = MLPField(2, (4,), forcing_dim=1)
    values = torch.tensor([[0.0], [1.0], [5.0]])
    field.forcing = Forcing(torch.tensor([0.0, 1.0, 2.0]), values)
    u = torch.randn(3, 2)
    each = field(torch.tensor([[0.5], [1.0], [2.0]]), u)
    inputs = torch.tensor([[0.5], [1.0], [5.0]])
    torch.testing.assert_close(each, field.at(u, inputs))
    torch.testing.assert_close(field(1.5, u), field.at(u, torch.full((3, 1), 3.0)))


def test_forcing_is_data_and_not_part_of_the_state_dict() -> None:
    field = LibraryField(1, 1, forcing_dim=1)
    field.forcing = Forcing(torch.tensor([0.0, 1.0]), torch.zeros(2, 1))
    assert list(field.state_dict()) == ["coefficients"]


def test_functions_and_networks_become_fields() -> None:
    u = torch.randn(4, 3)
    torch.testing.assert_close(as_field(lambda t, u: t * u)(2.0, u), 2 * u)
    net = torch.nn.Linear(3, 3)
    torch.testing.assert_close(AutonomousField(net)(0.0, u), net(u))
    assert as_field(net) is net


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MLPField(0), "`dim` and `hidden` must be positive"),
        (lambda: MLPField(3, activation="relu6"), "`activation` must be one of"),  # type: ignore[arg-type]
        (lambda: MLPField.preset("3x7", 3), "`name` must be one of"),
        (lambda: MLPField(3, forcing_dim=-1), "`forcing_dim` must be >= 0; got -1"),
        (lambda: ConvField(kernels=(4,)), "`kernels` must be odd"),
        (lambda: ConvField(width=0), "`channels` and `width` must be positive"),
        (lambda: ConvField()(0.0, torch.zeros(4)), "at least 5 sites"),
        (lambda: LibraryField(2, -1), "`degree` must be >= 0"),
        (lambda: LibraryField(2).equations(["x"]), "`names` must have 2 entries"),
        (lambda: MLPField(1, forcing_dim=1)(0.0, torch.zeros(1)), "has no forcing"),
        (lambda: Forcing(torch.tensor([1.0, 0.0]), torch.zeros(2, 1)), "increasing"),
        (
            lambda: Forcing(torch.tensor([0.0, 1.0]), torch.zeros(3, 1)),
            "one row",
        ),
        (
            lambda: Forcing(torch.tensor([0.0, 1.0]), torch.full((2, 1), math.nan)),
            "`values` must be finite",
        ),
    ],
)
def test_invalid_arguments_are_refused_by_name(make, message) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_forcing_refuses_times_it_does_not_cover_and_fields_foreign_forcings() -> None:
    forcing = Forcing(torch.tensor([0.0, 1.0]), torch.zeros(2, 1))
    forcing.check_covers(0.0, 1.0)
    with pytest.raises(ValueError, match=r"cover the times 0 \.\. 2; got 0 \.\. 1"):
        forcing.check_covers(0.0, 2.0)
    with pytest.raises(ValueError, match="must have the 0 inputs"):
        MLPField(2).forcing = forcing
    with pytest.raises(TypeError, match="must be a callable"):
        as_field(3)  # type: ignore[arg-type]
