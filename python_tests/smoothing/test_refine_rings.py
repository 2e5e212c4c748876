"""Refinement on rings: shared maps, declared symmetries, parts of long records."""

from functools import lru_cache

import pytest
import torch

from trajectories import lorenz96, normal
from wpnode_ext.closed_form import fit_closed_form
from wpnode_ext.coordinates.symmetry import Symmetry
from wpnode_ext.data import make_series
from wpnode_ext.fields import EquivariantField, LibraryField, LinearField, RingField
from wpnode_ext.smoothing import first_states, refine, spread_stretches

SITES, DT, SIGMA = 5, 0.02, 0.05


@lru_cache
def ring() -> tuple[torch.Tensor, torch.Tensor]:
    """A scaled Lorenz-96 ring and noisy observations of it."""
    clean = lorenz96(1500, DT, seed=1, sites=SITES, forcing=8.0)
    clean = (clean - clean.mean()) / clean.std()
    noise = normal(*clean.shape, seed=0)
    return clean, clean + SIGMA * noise.double()


def shared_map() -> LinearField:
    local = LibraryField(4, 2, outputs=1, dtype=torch.float64)
    return RingField(local, SITES, (-2, -1, 0, 1))


def symmetric_library() -> LinearField:
    base = LibraryField(SITES, 2, dtype=torch.float64)
    return EquivariantField.of(base, Symmetry.shifts(SITES).matrices)


def rms(x: torch.Tensor) -> float:
    return x.square().mean().sqrt().item()


@pytest.mark.parametrize("make", [shared_map, symmetric_library])
@pytest.mark.parametrize("samples", [None, 1000])
def test_refined_states_are_nearer_to_the_truth(make, samples: int | None) -> None:
    clean, noisy = ring()
    series, field = make_series(noisy, dt=DT), make()

    def fit(states: torch.Tensor) -> LinearField:
        fit_closed_form(field, series, states=states, p=8, ell=20, q=2)
        return field

    found = refine(series, fit, samples=samples, schedule=(0.1, 0.03), overlap=100)
    assert rms(found.first_states - clean) > 0.3 * SIGMA
    assert rms(found.states - clean) < 0.16 * SIGMA
    assert found.states.shape == found.std.shape == clean.shape
    # Error bars hold what they promise, neither ten times too small nor too large.
    share = rms((found.states - clean) / found.std)
    assert 0.5 < share < 2.0
    # The field commutes with shifts: one step along the ring.
    u = clean[:20]
    moved = found.field(0.0, u.roll(1, -1)) - found.field(0.0, u).roll(1, -1)
    assert rms(moved) < 1e-10 * rms(found.field(0.0, u))


@pytest.mark.parametrize("sigma", [0.0, 1e-3, 0.3])
def test_first_states_are_not_worse_than_the_data(sigma: float) -> None:
    # Seven samples a period: polynomials of degree 4 over seven samples miss it.
    t = torch.arange(2000, dtype=torch.float64)
    clean = torch.stack([torch.sin(0.9 * t), torch.sin(0.05 * t)], 1)
    noise = normal(*clean.shape, seed=4)
    noisy = clean + sigma * noise.double()
    found = first_states(make_series(noisy, dt=1.0))
    errors = (found.states - clean).square().mean(0).sqrt()
    assert errors[0] < 1.05 * sigma + 1e-3
    # Each component has a width of its own: the slow one is smoothed well.
    assert errors[1] < 0.5 * sigma + 1e-5


def test_stretches_are_spread_over_the_record() -> None:
    v = torch.zeros(10_000, 1).double()
    one = make_series(v, dt=0.1)
    found = spread_stretches(one, 3000)
    assert found == [(0, 0, 1000), (0, 4000, 5000), (0, 9000, 10_000)]
    many = make_series([v[:300], v[:2500], v[:800]], dt=0.1)
    assert spread_stretches(many, 10**6) == [
        (0, 0, 300),
        (1, 0, 1000),
        (1, 1000, 2000),
        (2, 0, 800),
    ]
