"""Systems of dysts: our trajectories against its own, refusals by name."""

import sys

import numpy as np
import pytest
import torch

from wpnode_ext.systems import Lorenz63, dysts_names, from_dysts

ABSENT = "dysts is not installed (extra `dysts`)"


@pytest.fixture
def dysts():
    """The package; its import warns if numba is missing."""
    return pytest.importorskip("dysts.flows", reason=ABSENT, exc_type=ImportError)


def test_the_lorenz_system_of_dysts_is_ours(dysts) -> None:
    theirs = from_dysts("Lorenz", beta=8 / 3)
    u = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(theirs.field(0.0, u), Lorenz63().field(0.0, u))
    assert theirs.lyapunov_exponent == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize("name", ["Rossler", "Thomas", "Duffing"])
def test_trajectories_are_those_of_dysts(dysts, name: str) -> None:
    system = from_dysts(name)
    start = np.asarray(getattr(dysts, name)().ic, dtype=float)
    t, expected = getattr(dysts, name)().make_trajectory(
        100, resample=True, return_times=True, postprocess=False, rtol=1e-9, atol=1e-9
    )
    ours = system.simulate(100, t[1] - t[0], u0=start)
    assert ours.numpy() == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_seeds_give_different_trajectories_on_the_attractor(dysts) -> None:
    system = from_dysts("Thomas")
    one, same, other = (
        system.simulate(50, system.period / 50, seed=seed) for seed in (0, 0, 1)
    )
    assert torch.equal(one, same)
    spread = torch.from_numpy(np.asarray(dysts.Thomas().std))
    assert ((one - other).abs() / spread).max() > 0.1


def test_fields_take_batches(dysts) -> None:
    system = from_dysts("Rossler", a=0.3)
    u = torch.randn(2, 5, 3, dtype=torch.float32)
    f = system.field(0.0, u)
    assert f.dtype == torch.float32 and f.shape == u.shape
    x, y, z = u.unbind(-1)
    torch.testing.assert_close(f[..., 1], x + 0.3 * y)
    assert system.simulate(3, 0.1, u0=u).shape == (3, 2, 5, 3)


def test_every_system_but_delay_equations_has_a_field(dysts) -> None:
    names = dysts_names()
    assert len(names) >= 125
    for name in names:
        system = from_dysts(name)
        u = system.random_state(torch.Generator().manual_seed(0))
        f = system.field(0.0, u)
        assert f.shape == u.shape and f.isfinite().all(), name


def test_unknown_names_delay_equations_and_unknown_parameters_are_refused(
    dysts,
) -> None:
    with pytest.raises(ValueError, match=r"systems of dysts; got 'Rosler'.*'Rossler'"):
        from_dysts("Rosler")
    with pytest.raises(ValueError, match=r"`name` must .* delay equation"):
        from_dysts("MackeyGlass")
    with pytest.raises(ValueError, match="`d` must be a parameter of Rossler: a, b, c"):
        from_dysts("Rossler", d=1.0)


def test_the_error_names_the_extra_that_installs_dysts(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "dysts", None)
    monkeypatch.setitem(sys.modules, "dysts.flows", None)
    with pytest.raises(ImportError, match=r"wpnode_ext\[dysts\]"):
        from_dysts("Lorenz")
