"""Exponents of systems for which they are known."""

import math

import pytest
import torch

from wpnode_ext.metrics.lyapunov import (
    LyapunovResult,
    lyapunov_exponents,
    map_lyapunov_exponents,
)
from wpnode_ext.systems import Lorenz63, Lorenz96


def test_exponents_of_a_linear_system_are_the_real_parts_of_its_eigenvalues() -> None:
    # Eigenvalues 0.3 +- 2i and -1, in a basis that is not orthogonal.
    blocks = torch.tensor([[0.3, 2.0, 0.0], [-2.0, 0.3, 0.0], [0.0, 0.0, -1.0]])
    basis = torch.tensor([[1.0, 0.5, 0.2], [0.0, 1.0, 0.7], [0.0, 0.0, 1.0]])
    matrix = (basis @ blocks @ basis.inverse()).double()
    starts = torch.randn(2, 3, dtype=torch.float64)
    # 25 turns of the rotating plane, after which its growth is the mean one.
    result = lyapunov_exponents(
        lambda t, u: u @ matrix.T,
        starts,
        dt=math.pi / 100,
        duration=2 * math.pi,
        align=4 * math.pi,
        n_exponents=3,
    )
    torch.testing.assert_close(
        result.exponents, torch.tensor([0.3, 0.3, -1.0]).double(), rtol=0, atol=1e-4
    )
    assert result.exponents.sum().item() == pytest.approx(-0.4, abs=1e-6)


def test_all_exponents_of_lorenz63_add_up_to_the_divergence_of_the_field() -> None:
    system = Lorenz63()
    starts = system.simulate(5, 0.5)
    result = lyapunov_exponents(
        system.field, starts, dt=0.005, duration=0.5, n_exponents=3
    )
    divergence = -(10 + 1 + 8 / 3)
    assert result.members.sum(1).tolist() == pytest.approx([divergence] * 5, abs=1e-4)


def test_the_logistic_map_doubles_errors_on_average() -> None:
    starts = torch.rand(400, 1, dtype=torch.float64)
    result = map_lyapunov_exponents(
        lambda u: 4 * u * (1 - u), starts, dt=1.0, duration=60, renormalise_every=2
    )
    assert abs(result.maximal - math.log(2)) < 4 * result.error[0] + 0.01
    assert result.error[0] < 0.02


def test_states_with_several_axes_are_one_vector() -> None:
    rates = torch.tensor([[0.5, -1.0], [0.1, -0.2]], dtype=torch.float64)
    result = lyapunov_exponents(
        lambda t, u: rates * u,
        torch.ones(3, 2, 2, dtype=torch.float64),
        dt=0.05,
        duration=5,
        n_exponents=4,
    )
    expected = torch.tensor([0.5, 0.1, -0.2, -1.0], dtype=torch.float64)
    torch.testing.assert_close(result.exponents, expected, rtol=0, atol=1e-6)


def test_kaplan_yorke_dimension_of_the_known_exponents() -> None:
    def of(*values: float) -> float:
        exponents = torch.tensor(values)
        return LyapunovResult(exponents, exponents, exponents[None]).kaplan_yorke

    assert of(0.9, 0.0, -14.5) == pytest.approx(2 + 0.9 / 14.5)
    assert of(-1.0, -2.0) == 0.0
    assert math.isnan(of(0.9, 0.0))


def test_bad_requests_are_refused() -> None:
    starts = torch.ones(2, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match="`n_exponents` must be from 1 to 3; got 4"):
        lyapunov_exponents(lambda t, u: -u, starts, dt=0.1, duration=5, n_exponents=4)
    with pytest.raises(ValueError, match="`u0` must have shape"):
        lyapunov_exponents(lambda t, u: -u, starts[0], dt=0.1, duration=5)
    with pytest.raises(ValueError, match="`duration` must be at least 10 steps"):
        lyapunov_exponents(lambda t, u: -u, starts, dt=0.1, duration=0.5)
    with pytest.raises(ValueError, match="grew without bound"):
        lyapunov_exponents(lambda t, u: u**3 * 100, starts, dt=0.1, duration=5)


@pytest.mark.slow
@pytest.mark.parametrize(("forcing", "low", "high"), [(8, 1.65, 1.75), (10, 2.2, 2.35)])
def test_maximal_exponent_of_lorenz96(forcing: float, low: float, high: float) -> None:
    system = Lorenz96(d=40, forcing=float(forcing))
    starts = system.simulate(400, 1.0)
    result = lyapunov_exponents(system.field, starts, dt=0.02, duration=12, align=10)
    assert low < result.maximal < high


@pytest.mark.slow
def test_maximal_exponent_of_lorenz63() -> None:
    system = Lorenz63()
    starts = system.simulate(1000, 0.5)
    result = lyapunov_exponents(system.field, starts, dt=0.01, duration=10, align=5)
    assert abs(result.maximal - 0.9056) < 3 * result.error[0]
    assert result.error[0] < 0.01
