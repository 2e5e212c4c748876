"""The rest of a state as a function of its coordinates."""

import math

import pytest
import torch
from torch import Tensor

from trajectories import normal
from wpnode_ext import WPNODE, Symmetry, load, rollout
from wpnode_ext.coordinates.manifold import Completion, fit_completion
from wpnode_ext.coordinates.reduced import Coordinates
from wpnode_ext.coordinates.scaling import LinearScaler, scaler_from_state_dict
from wpnode_ext.fields import LibraryField
from wpnode_ext.model.export import export_field
from wpnode_ext.settings.config import TrainConfig, WeakForm

RATE = 4.0


def turned(seed: int = 0) -> Tensor:
    """An orthonormal basis of five entries."""
    return torch.linalg.qr(normal(5, 5, seed=seed)).Q


def slow(n: int, seed: int = 1) -> Tensor:
    return normal(n, 2, seed=seed)


def products(s: Tensor) -> Tensor:
    """Two functions of degree two of two slow coordinates."""
    x, y = s.unbind(-1)
    return torch.stack([0.3 * x * y + 0.1, 0.2 * x.square() - 0.1 * y], -1)


def noise(shape: torch.Size, seed: int = 2) -> Tensor:
    return normal(*shape, seed=seed)


def found(rest: Tensor, s: Tensor, size: float = 1.0, **options) -> Completion | None:
    return fit_completion(rest, s, size=size, rate=RATE, **options)


def test_a_polynomial_of_degree_two_is_found_to_rounding() -> None:
    s, basis = slow(500), turned()
    rest = products(s) @ basis[:, 2:4].T
    made = found(rest, s)
    assert made is not None and made.directions.shape == (5, 2)
    torch.testing.assert_close(made(s), rest, atol=1e-12, rtol=0)


def test_noise_in_the_rest_averages_out() -> None:
    """Coefficients err by sigma / sqrt(N), though each value is mostly noise."""
    s, basis = slow(20_000), turned()
    rest = products(s) @ basis[:, 2:4].T
    seen = rest + noise(rest.shape) @ basis[:, 2:] @ basis[:, 2:].T
    made = found(seen, s)
    assert made is not None
    error = (made(s) - rest).square().sum(1).mean().sqrt().item()
    assert error < 2 * math.sqrt(6 * 3 / 20_000)


@pytest.mark.parametrize("memory", [0.0, 0.9])
@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_is_left_out(seed: int, memory: float) -> None:
    """White and correlated noise, larger in one entry than in the others."""
    s, basis = slow(4000), turned()
    rest = noise(torch.Size([4000, 3]), 10 + seed)
    for n in range(1, 4000):
        rest[n] += memory * rest[n - 1]
    rest[:, 0] *= 20
    assert found(rest @ basis[:, 2:].T, s) is None


def test_few_samples_and_rounding_are_not_completed() -> None:
    s, basis = slow(500), turned()
    rest = products(s) @ basis[:, 2:4].T
    assert found(rest, s) is not None
    assert found(rest[:70], s[:70]) is None
    assert found(1e-12 * rest, s) is None


def test_a_coordinate_that_is_always_zero_does_no_harm() -> None:
    s, basis = slow(500), turned()
    rest = products(s) @ basis[:, 2:4].T
    made = found(rest, torch.cat([s, torch.zeros(500, 1)], 1))
    assert made is not None
    torch.testing.assert_close(
        made(torch.cat([s, torch.zeros(500, 1)], 1)), rest, atol=1e-12, rtol=0
    )


def test_the_completion_commutes_with_all_maps() -> None:
    """The reflection of both slow coordinates leaves products alone."""
    s, basis = slow(300), turned()
    rest = products(s) @ basis[:, 2:4].T + 0.1 * noise(torch.Size([300, 5])).double()
    signs = torch.tensor([-1.0, -1.0, 1.0, -1.0, -1.0]).double()
    symmetry = Symmetry([basis @ torch.diag(signs) @ basis.T])
    own = symmetry.in_coordinates(basis[:, :2].T, basis[:, :2])
    made = found(rest, s, maps=(own.group, symmetry.group))
    assert made is not None
    g, image = own.group[1], symmetry.group[1]
    torch.testing.assert_close(made(s @ g.T), made(s) @ image.T)


def completed() -> LinearScaler:
    s, basis = slow(500), turned()
    made = found(products(s) @ basis[:, 2:4].T, s)
    shift = torch.arange(5.0).double()
    return LinearScaler(basis[:, :2].T / 3, 3 * basis[:, :2], shift, made)


def test_states_go_there_and_back_and_to_a_file() -> None:
    scaler, s = completed(), slow(7)
    v = scaler.inverse(s)
    torch.testing.assert_close(scaler.transform(v), s)
    again = scaler_from_state_dict(scaler.state_dict())
    torch.testing.assert_close(again.inverse(s), v)
    assert scaler.inverse(s.float()).dtype == torch.float32
    torch.testing.assert_close(scaler.inverse(s.float()), v.float())


def oscillator() -> LibraryField:
    """``s'' = -s``, as a field of two coordinates."""
    field = LibraryField(2, 1, dtype=torch.float64)
    field.set_coefficients(torch.tensor([[0.0, 0.0], [0.0, -1.0], [1.0, 0.0]]).double())
    return field


def test_forecasts_follow_the_rest_and_forget_deviations_from_it() -> None:
    scaler, s0 = completed(), slow(1)
    t = 0.05 * torch.arange(80).double()
    c, w = t.cos()[:, None], t.sin()[:, None]
    x, y = s0.unbind(-1)
    path = scaler.inverse(torch.cat([x * c + y * w, y * c - x * w], 1))
    field = scaler.to_physical(oscillator())
    options = {"method": "dopri5", "rtol": 1e-10, "atol": 1e-10}
    forecast = rollout(field, path[:1], t, **options).u[:, 0]
    torch.testing.assert_close(forecast, path, atol=1e-7, rtol=0)
    # Off the path the completed directions come back, the last one does not.
    away = torch.tensor([0.0, 0.0, 0.5, -0.2, 0.7]).double()
    forecast = rollout(field, path[:1] + turned() @ away, t, **options).u[:, 0]
    left = (forecast - path) @ turned()
    decay = (-RATE * t).exp()[:, None] * away[2:4]
    torch.testing.assert_close(left[:, 2:4], decay, atol=1e-7, rtol=0)
    torch.testing.assert_close(left[:, 4], away[4].expand(80), atol=1e-7, rtol=0)


@pytest.fixture(scope="module")
def model() -> tuple[WPNODE, Tensor, Tensor]:
    """Two coordinates of five entries; noise hides the entries that they drive."""
    t = 0.05 * torch.arange(4000).double()
    s = torch.stack([t.cos(), -t.sin()], 1)
    basis = turned()
    clean = s @ basis[:, :2].T + 0.2 * products(s) @ basis[:, 2:4].T
    config = TrainConfig(method="closed_form", weak=WeakForm(p=4, ell=30, q=2))
    fitted = WPNODE(config=config, field="library", coordinates=basis[:, :2])
    v = clean + 0.1 * noise(clean.shape)
    return fitted.fit(v, 0.05), clean, basis


def test_a_model_completes_states_and_forecasts(model, tmp_path) -> None:
    fitted, clean, basis = model
    assert fitted.states_ is not None
    rest = basis[:, 2:4]
    size = (clean @ rest).square().mean().sqrt()
    error = ((fitted.states_ - clean) @ rest).square().mean().sqrt()
    assert error < 0.2 * size
    t = 0.05 * torch.arange(200).double()
    forecast = fitted.forecast(clean[0], t)
    off = ((forecast - clean[:200]) @ rest).square().mean().sqrt()
    assert off < 0.3 * size
    fitted.save(tmp_path / "model.pt")
    again = load(tmp_path / "model.pt").forecast(clean[0], t)
    torch.testing.assert_close(again, forecast)


def test_the_rest_does_not_hide_errors_of_the_field(model) -> None:
    fitted, clean, _ = model
    v = clean + 0.1 * noise(clean.shape)
    right = fitted.goodness_of_fit(v, 0.05).ratio
    kept = fitted.field_.coefficients.detach().clone()
    try:
        fitted.field_.set_coefficients(0.7 * kept)
        wrong = fitted.goodness_of_fit(v, 0.05).ratio
    finally:
        fitted.field_.set_coefficients(kept)
    assert right < 1.5 and wrong > 2 * right


def orbit(n: int = 2000) -> Tensor:
    t = 0.05 * torch.arange(n).double()
    return torch.stack([t.cos(), -t.sin()], 1)


def fitted_to(v: Tensor, coordinates) -> WPNODE:
    config = TrainConfig(method="closed_form", weak=WeakForm(p=4, ell=30, q=2))
    model = WPNODE(config=config, field="library", coordinates=coordinates)
    return model.fit(v, 0.05)


@pytest.mark.parametrize("kind", ["matrix", "pod"])
def test_states_that_coordinates_hold_are_not_completed(kind: str) -> None:
    basis = turned()
    clean = orbit() @ basis[:, :2].T
    model = fitted_to(clean, basis[:, :2] if kind == "matrix" else "pod")
    assert isinstance(model.scaler_, LinearScaler) and model.scaler_.completion is None


def test_oblique_coordinates_are_completed_as_well() -> None:
    """A forecast from a refined state follows the refined states."""
    basis = turned()
    clean = orbit() @ basis[:, :2].T + 0.2 * products(orbit()) @ basis[:, 2:4].T
    encode = basis[:, :2].T + 0.5 * basis[:, 2:4].T
    centre = torch.zeros(5).double()
    oblique = Coordinates(encode, basis[:, :2].contiguous(), centre)
    model = fitted_to(clean + 0.02 * noise(clean.shape), oblique)
    assert model.states_ is not None and model.scaler_.completion is not None
    t = 0.05 * torch.arange(100).double()
    off = model.forecast(model.states_[500], t) - model.states_[500:600]
    assert off.square().mean().sqrt() < 0.02


def test_a_completed_field_is_exported(model, tmp_path) -> None:
    fitted, clean, _ = model
    export_field(fitted, tmp_path / "field.pt2")
    program = torch.export.load(tmp_path / "field.pt2").module()
    torch.testing.assert_close(
        program(torch.zeros(()).double(), clean[:3]),
        fitted.physical_field_(torch.zeros(()).double(), clean[:3]),
    )
