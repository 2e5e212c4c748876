"""Reduced coordinates against discrete Fourier transforms and planted subspaces."""

import pytest
import torch

from trajectories import normal
from wpnode_ext.coordinates.reduced import Coordinates
from wpnode_ext.coordinates.scaling import scaler_from_state_dict
from wpnode_ext.coordinates.symmetry import Symmetry


def waves(n: int, sites: int, amplitudes: dict[int, float], noise: float):
    """A ring with slowly turning waves, and noise."""
    s = 2 * torch.pi * torch.arange(sites, dtype=torch.float64) / sites
    t = torch.arange(n, dtype=torch.float64)[:, None] * 0.05
    v = sum(a * torch.cos(k * s - (1 + 0.1 * k) * t) for k, a in amplitudes.items())
    return v + noise * normal(n, sites, seed=0)


@pytest.mark.parametrize("sites", [8, 9])
def test_all_fourier_coordinates_are_an_orthonormal_transform(sites: int) -> None:
    v = normal(40, sites)
    c = Coordinates.fourier(v, range(sites // 2 + 1))
    assert c.dim == sites
    eye = torch.eye(sites, dtype=torch.float64)
    torch.testing.assert_close(c.encode @ c.decode, eye)
    torch.testing.assert_close(c.back(c.to(v)), v)
    power = torch.fft.rfft(v[0], norm="ortho").abs().square()
    power[1 : (sites + 1) // 2] *= 2
    a = c.to(v[0]).square()
    waves = [int(label[3:]) for label in c.labels]
    found = torch.zeros(sites // 2 + 1).double().index_add(0, torch.tensor(waves), a)
    torch.testing.assert_close(found, power)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5])
def test_the_spectrum_chooses_the_waves_that_stand_out_of_the_noise(noise) -> None:
    v = waves(4000, 32, {1: 1.0, 3: 0.5, 4: 0.3}, noise)
    c = Coordinates.fourier(v)
    assert c.labels == ("cos1", "sin1", "cos3", "sin3", "cos4", "sin4")
    assert c.noise is not None
    assert c.noise.mean().item() == pytest.approx(noise, rel=0.05, abs=1e-6)


def test_waves_below_the_noise_are_left_out_and_faint_ones_are_not_needed() -> None:
    faint = {1: 1.0, 2: 0.3, 5: 1e-4}
    assert Coordinates.fourier(waves(4000, 32, faint, 0.0)).dim == 4
    buried = {1: 1.0, 2: 0.3, 5: 2e-2}
    assert Coordinates.fourier(waves(4000, 32, buried, 0.0)).dim == 6
    assert Coordinates.fourier(waves(4000, 32, buried, 1.0)).dim == 4


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_pod_finds_a_planted_subspace(noise: float) -> None:
    planted = torch.linalg.qr(normal(20, 3)).Q
    t = torch.arange(5000, dtype=torch.float64) * 0.02
    a = torch.stack([3 * torch.sin(t), 2 * torch.cos(1.7 * t), torch.sin(2.3 * t)], 1)
    v = 5 + a @ planted.T
    v = v + noise * normal(*v.shape)
    c = Coordinates.pod(v)
    assert c.dim == 3
    outside = planted - c.decode @ (c.encode @ planted)
    assert outside.norm().item() < 0.01 + 0.1 * noise
    torch.testing.assert_close(c.back(c.to(v)), v, atol=5 * noise + 1e-8, rtol=0)


def test_a_users_coordinates_need_not_be_orthonormal() -> None:
    decode = torch.tensor([[1.0, 1.0], [0.0, 2.0], [0.0, 0.0]], dtype=torch.float64)
    c = Coordinates.linear(decode, centre=torch.tensor([0.0, 0.0, 7.0]))
    a = normal(5, 2)
    torch.testing.assert_close(c.to(c.back(a)), a)
    assert (c.back(a)[:, 2] == 7).all()
    with pytest.raises(ValueError, match="independent"):
        Coordinates.linear(torch.ones(3, 2))


def test_a_field_of_coordinates_moves_states_as_its_own_do() -> None:
    v = normal(40, 8)
    c = Coordinates.fourier(v, [1, 2])
    field = c.to_physical(lambda t, a: t - a**2)
    u = c.back(c.to(v))
    h = 1e-3
    expected = (c.back(c.to(u) + h * (2.0 - c.to(u) ** 2)) - u) / h
    torch.testing.assert_close(field(2.0, u), expected, atol=1e-9, rtol=1e-9)


def test_shifts_act_on_fourier_coordinates() -> None:
    v = normal(40, 8)
    c = Coordinates.fourier(v, [1, 3])
    ring = Symmetry.shifts(8) * Symmetry.mirror(8, sign=-1)
    turned = ring.in_coordinates(c.encode, c.decode)
    for g, h in zip(ring.matrices, turned.matrices, strict=True):
        torch.testing.assert_close(c.to(v @ g.T), c.to(v) @ h.T)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda v: Coordinates.fourier(v, [5]), "0 .. 4"),
        (lambda v: Coordinates.fourier(v, []), "`wavenumbers`"),
        (lambda v: Coordinates.pod(v, 9), "1 .. 8"),
    ],
)
def test_modes_that_do_not_exist_are_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(normal(40, 8))


def test_a_scaler_of_coordinates_goes_to_files_and_back() -> None:
    v = 3 + normal(40, 8)
    c = Coordinates.pod(v, 3)
    a = c.to(v)
    scaler = c.scaler(a.mean(0), a.std(0))
    again = scaler_from_state_dict(scaler.state_dict())
    s = again.transform(v)
    torch.testing.assert_close(s, (a - a.mean(0)) / a.std(0))
    torch.testing.assert_close(again.inverse(s), c.back(a))
    torch.testing.assert_close(again.transform(again.inverse(s)), s)
    assert again.scaled_shape((8,)) == (3,)
    field = again.to_physical(lambda t, a: -a)
    torch.testing.assert_close(field(0.0, v), c.centre - c.back(a))


def test_spreads_of_coordinates_are_those_of_their_states() -> None:
    decode = torch.tensor([[1.0, 1.0], [0.0, 2.0], [0.0, 0.0]], dtype=torch.float64)
    scaler = Coordinates.linear(decode).scaler(scale=torch.tensor([2.0, 1.0]))
    # Variances 4 * 9 and 1 * 16 in the coordinates.
    found = scaler.spread(torch.tensor([3.0, 4.0], dtype=torch.float64))
    expected = torch.tensor([36.0 + 16.0, 4 * 16.0, 0.0], dtype=torch.float64).sqrt()
    torch.testing.assert_close(found, expected)


def test_coordinates_are_chosen_by_name_matrix_or_object() -> None:
    v = waves(300, 16, {1: 1.0, 3: 0.5}, 0.0)
    assert Coordinates.choose("fourier", v).labels == Coordinates.fourier(v).labels
    assert Coordinates.choose("pod", v).dim == Coordinates.pod(v).dim
    matrix = torch.eye(16, dtype=torch.float64)[:, :3]
    assert Coordinates.choose(matrix, v).dim == 3
    made = Coordinates.linear(matrix)
    assert Coordinates.choose(made, v) is made
    with pytest.raises(ValueError, match="`coordinates`"):
        Coordinates.choose("wavelets", v)


def test_waves_that_only_a_long_record_shows_are_left_out() -> None:
    # An amplitude a has the variance 2 a^2 in a coordinate of 8 sites: 0.1 of the
    # noise's, which is 7 standard errors of it.
    v = waves(10_000, 8, {1: 5.0, 3: 0.05**0.5}, noise=1.0)
    assert Coordinates.fourier(v).labels == ("cos1", "sin1")
