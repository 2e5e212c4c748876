"""Fields against values worked out by hand, trajectories against other solvers."""

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

import wpnode_ext.systems.kuramoto_sivashinsky as ks_module
from wpnode_ext.systems import (
    PRESETS,
    KuramotoSivashinsky,
    Lorenz63,
    Lorenz96,
    Preset,
    System,
    preset,
)

SYSTEMS: tuple[System, ...] = (Lorenz63(), Lorenz96(d=8), KuramotoSivashinsky())
IDS = ("l63", "l96", "ks")


def test_lorenz63_at_one_point() -> None:
    u = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    f = Lorenz63(sigma=10, rho=28, beta=2).field(0.0, u)
    assert f.tolist() == [10.0, 23.0, -4.0]


def test_lorenz96_at_one_point() -> None:
    u = torch.tensor([1.0, 2.0, 3.0, 5.0], dtype=torch.float64)
    # Site 0 has the neighbours 2 (ahead), 5 (behind) and 3 (two behind).
    f = Lorenz96(d=4, forcing=8.0).field(0.0, u)
    assert f[0] == (2 - 3) * 5 - 1 + 8
    assert f[3] == (1 - 2) * 3 - 5 + 8


def test_kuramoto_sivashinsky_on_a_sine_wave() -> None:
    system = KuramotoSivashinsky(length=5.0, n_points=32, nu=0.3)
    x = 5.0 * torch.arange(32, dtype=torch.float64) / 32
    k = 2 * 2 * math.pi / 5.0
    u = 0.7 * torch.sin(k * x)
    linear = (k**2 - 0.3 * k**4) * u
    advection = -(0.7**2) * k * torch.sin(k * x) * torch.cos(k * x)
    assert (system.field(0.0, u) - linear - advection).abs().max() < 1e-11


def test_odd_derivatives_of_the_nyquist_wave_vanish() -> None:
    system = KuramotoSivashinsky()
    wave = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(32)
    mean = torch.full((64,), 2.0, dtype=torch.float64)
    # (mean + wave)^2 has the Nyquist part 2 mean wave; its derivative must not show.
    f = system.field(0.0, mean + wave) - system.field(0.0, wave)
    assert f.abs().max() < 1e-11


@pytest.mark.parametrize("system", SYSTEMS, ids=IDS)
def test_fields_are_batched_and_differentiable(system: System) -> None:
    u = torch.randn(3, 2, *system.state_shape, dtype=torch.float64)
    f = system.field(0.0, u)
    assert f.shape == u.shape
    torch.testing.assert_close(f[1, 1], system.field(0.0, u[1, 1]))
    direction = torch.randn_like(u)
    _, tangent = torch.func.jvp(lambda x: system.field(0.0, x), (u,), (direction,))
    h = 1e-6
    ahead, back = (system.field(0.0, u + s * h * direction) for s in (1, -1))
    error = (tangent - (ahead - back) / (2 * h)).abs().max()
    assert error < 1e-6 * tangent.abs().max()


@pytest.mark.parametrize("system", SYSTEMS, ids=IDS)
def test_fields_keep_the_dtype_of_the_state(system: System) -> None:
    u = torch.randn(2, *system.state_shape)
    assert system.field(0.0, u).dtype == torch.float32


@pytest.mark.parametrize("system", SYSTEMS[:2], ids=IDS[:2])
def test_the_numpy_field_is_the_field(system: System) -> None:
    u = torch.randn(5, *system.state_shape, dtype=torch.float64)
    np.testing.assert_array_equal(
        system._numpy_field(0.0, u.numpy()), system.field(0.0, u).numpy()
    )


def test_lorenz63_trajectory_matches_taylor_series_in_25_digits() -> None:
    start = [-5.0, -7.0, 20.0]
    u = Lorenz63().simulate(31, 0.01, u0=torch.tensor(start))
    with mpmath.workdps(25):
        exact = mpmath.odefun(
            lambda _, y: [
                10 * (y[1] - y[0]),
                y[0] * (28 - y[2]) - y[1],
                y[0] * y[1] - mpmath.mpf(8) / 3 * y[2],
            ],
            0,
            [mpmath.mpf(x) for x in start],
        )(mpmath.mpf("0.3"))
    assert np.abs(u[30].numpy() - [float(x) for x in exact]).max() < 1e-9


def test_kuramoto_sivashinsky_trajectory_matches_an_implicit_solver() -> None:
    system = KuramotoSivashinsky()
    start = system.random_state(torch.Generator().manual_seed(3))
    u = system.simulate(3, 0.5, u0=start)

    def rhs(_, y):
        return system.field(0.0, torch.from_numpy(y)).numpy()

    exact = solve_ivp(
        rhs, (0, 1.0), start.numpy(), method="Radau", rtol=1e-9, atol=1e-9
    )
    assert np.abs(u[2].numpy() - exact.y[:, -1]).max() < 1e-6


def test_kuramoto_sivashinsky_converges_fast_with_the_step(monkeypatch) -> None:
    system = KuramotoSivashinsky()
    start = system.simulate(1, 0.25, burn_in=50.0)[0]
    ends = {}
    for step in (1 / 16, 1 / 32, 1 / 128):
        monkeypatch.setattr(ks_module, "MAX_STEP", step)
        ends[step] = system.simulate(5, 0.25, u0=start)[-1]
    errors = [(ends[h] - ends[1 / 128]).abs().max().item() for h in (1 / 16, 1 / 32)]
    # Fourth order, somewhat reduced by stiffness at these steps.
    assert errors[0] / errors[1] > 8
    assert errors[1] < 1e-5


def test_one_step_of_kuramoto_sivashinsky_is_a_sample_of_the_trajectory() -> None:
    system = KuramotoSivashinsky()
    u = system.simulate(3, 0.25, burn_in=10.0)
    torch.testing.assert_close(system.step(u[1], 0.25), u[2], rtol=0, atol=1e-11)


def test_kuramoto_sivashinsky_keeps_its_mean() -> None:
    u = KuramotoSivashinsky().simulate(50, 1.0, burn_in=50.0)
    assert u.mean(-1).abs().max() < 1e-10
    assert u.std() > 0.5


@pytest.mark.parametrize("system", SYSTEMS, ids=IDS)
def test_seeds_decide_the_trajectory(system: System) -> None:
    options = {"burn_in": 1.0}
    u = system.simulate(3, 0.1, seed=1, **options)
    again = system.simulate(3, 0.1, seed=torch.Generator().manual_seed(1), **options)
    other = system.simulate(3, 0.1, seed=2, **options)
    assert u.shape == (3, *system.state_shape) and u.dtype == torch.float64
    assert torch.equal(u, again)
    assert not torch.allclose(u, other)


@pytest.mark.parametrize("system", SYSTEMS, ids=IDS)
def test_a_batch_of_starts_is_integrated_together(system: System) -> None:
    starts = system.simulate(3, 0.5, burn_in=2.0)
    together = system.simulate(4, 0.1, u0=starts)
    assert together.shape == (4, 3, *system.state_shape)
    for b, start in enumerate(starts):
        alone = system.simulate(4, 0.1, u0=start)
        torch.testing.assert_close(together[:, b], alone, rtol=0, atol=1e-8)


def test_bad_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="`n` must be an integer >= 1; got 0"):
        Lorenz63().simulate(0, 0.1)
    with pytest.raises(ValueError, match="`dt` must be positive; got -1"):
        Lorenz63().simulate(2, -1.0)
    with pytest.raises(ValueError, match="`u0` must end in the state shape"):
        Lorenz63().simulate(2, 0.1, u0=torch.zeros(4))
    with pytest.raises(ValueError, match="`d` must be an integer >= 4; got 3"):
        Lorenz96(d=3)
    with pytest.raises(ValueError, match="`n_points` must be an even integer >= 8"):
        KuramotoSivashinsky(n_points=63)


def test_presets_are_the_rows_of_the_paper() -> None:
    rows = {
        name: (x.dt, x.n_samples, x.p, x.q, x.ell, x.window, x.lam, x.strong_windows)
        for name, x in PRESETS.items()
    }
    assert rows == {
        "lorenz63": (0.01, 10**4, 8, 2, 50, 2, 0.5, (25,)),
        "lorenz96": (0.01, 10**5, 8, 2, 80, 2, 0.5, (25,)),
        "kuramoto_sivashinsky": (0.25, 10**5, 16, 2, 60, 2, 1.0, (25, 50)),
    }
    assert preset("KS").lyapunov_exponent == 0.05
    assert preset("l96").computed_lyapunov_exponent > 2.2
    with pytest.raises(ValueError, match="`name` must be one of lorenz63"):
        preset("lorentz")


def test_a_system_from_outside_is_one_entry() -> None:
    PRESETS.add("quiet_ring", Preset(Lorenz96(d=6, forcing=0.0), 100, 0.1))
    try:
        found = preset("quiet_ring")
        assert found.weak_form == {"p": 8, "ell": 50, "q": 2}
        assert found.system.simulate(5, found.dt).shape == (5, 6)
        with pytest.raises(ValueError, match=r"`name` must .*mean 'quiet_ring'\?"):
            preset("quiet_rings")
    finally:
        PRESETS.remove("quiet_ring")


@pytest.mark.slow
def test_kuramoto_sivashinsky_stays_on_its_attractor_for_100000_samples() -> None:
    u = KuramotoSivashinsky().simulate(100_000, 0.25)
    assert abs(u.std().item() - 1.206) < 0.03
    assert u.abs().max() < 4
