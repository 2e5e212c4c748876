"""Statistics, bounds and solvers of long forecasts whose climate is known."""

import math

import pytest
import torch

from problems import lorenz63_field
from trajectories import lorenz63
from wpnode_ext.metrics import boundedness, solver_robustness
from wpnode_ext.metrics.climate import evaluate_climate
from wpnode_ext.systems import KuramotoSivashinsky, Lorenz63

DT = 0.02
OPTIONS = {"members": 10, "duration": 5.0}


def true_field(t, u):
    return lorenz63_field(u)


@pytest.fixture(scope="module")
def reference() -> torch.Tensor:
    return lorenz63(4000, DT)


def test_the_true_field_has_the_climate_of_the_reference(reference) -> None:
    result = evaluate_climate(
        true_field, reference, DT, lyapunov_exponent=0.9056, **OPTIONS
    )
    assert result.bounded.share == 1.0
    assert result.kl < 0.2 and result.kl < 5 * result.kl_halves + 0.05
    assert result.spectral < 0.2
    assert result.lyapunov is not None
    # Ten forecasts of 5 units of time: a scatter of about 0.15.
    assert result.lyapunov.maximal == pytest.approx(0.9056, abs=0.5)
    assert [row.method for row in result.solvers] == [
        "dopri5",
        "bosh3",
        "euler",
        "midpoint",
        "rk4",
    ]
    assert result.solvers[0].distance == result.kl
    assert result.solvers[4].diverged == 0.0


def test_another_attractor_is_further_away(reference) -> None:
    def other(t, u):
        # The same attractor with x and y half as large.
        scale = torch.tensor([0.5, 0.5, 1.0], dtype=u.dtype)
        return scale * lorenz63_field(u / scale)

    few = {"solvers": ("rk4",), "exponent": False, **OPTIONS}
    near = evaluate_climate(true_field, reference, DT, **few)
    far = evaluate_climate(other, reference, DT, **few)
    assert far.kl > 3 * near.kl
    assert far.state_space > near.state_space
    assert len(far.solvers) == 1


def test_a_field_at_rest_has_statistics(reference) -> None:
    result = evaluate_climate(
        lambda t, u: 0.0 * u,
        reference[:400],
        DT,
        members=2,
        duration=1.0,
        solvers=("rk4",),
    )
    assert result.kl > 0.5
    assert result.spectral == 1.0
    assert result.bounded.share == 1.0
    assert result.lyapunov is not None and result.lyapunov.maximal == 0.0


def test_a_field_that_diverges_has_no_climate(reference) -> None:
    result = evaluate_climate(
        lambda t, u: 90.0 * u,
        reference[:400],
        DT,
        solvers=("dopri5", "rk4"),
        exponent=False,
    )
    assert result.bounded.share == 0.0
    assert result.solvers[0].diverged == 1.0 and result.solvers[1].diverged == 1.0
    assert result.solvers[1].distance == math.inf
    assert result.spectral == 1.0


def test_diverging_tangents_are_reported(reference) -> None:
    result = evaluate_climate(
        lambda t, u: u**3, reference[:400], DT, solvers=("rk4",), members=3
    )
    assert result.lyapunov is None
    assert "ran away" in dict(result.rows())["maximal Lyapunov exponent of the field"]


def test_stiff_fields_are_integrated_by_exponential_steps() -> None:
    system = KuramotoSivashinsky()
    u = system.simulate(1200, 0.25, seed=0)
    how = {"members": 3, "duration": 100.0, "length": 22.0, "exponent": False}
    result = evaluate_climate(
        system.field, u, 0.25, solvers=("etdrk4", "rk4"), step=0.25 / 4, **how
    )
    assert result.bounded.share == 1.0
    assert result.kl < 2 * result.kl_halves
    assert result.solvers[1].diverged == 1.0


def test_the_joint_density_of_derivatives_is_used_on_a_line() -> None:
    system = KuramotoSivashinsky()
    u = system.simulate(600, 0.25, seed=0)
    result = evaluate_climate(
        lambda t, u: 0.0 * u,
        u,
        0.25,
        length=22.0,
        members=3,
        duration=5.0,
        solvers=("euler",),
        exponent=False,
    )
    assert result.kl_kind == "joint" and result.kl > result.kl_halves


def test_borders_gaps_and_components_that_never_change_are_left_out(reference) -> None:
    still = torch.full((800, 1), 7.0, dtype=torch.float64)
    u = torch.cat([reference[:800], still], 1)
    mask = torch.zeros(800, dtype=torch.bool)
    mask[500] = True
    u[500] = 1e9

    def field(t, u):
        return torch.cat([lorenz63_field(u[..., :3]), 0 * u[..., :1]], -1)

    result = evaluate_climate(
        field,
        u,
        DT,
        lengths=[300, 500],
        mask=mask,
        duration=2.0,
        members=5,
        solvers=("rk4",),
        exponent=False,
    )
    assert math.isfinite(result.kl) and result.kl < 5
    assert result.u_hat.shape == (101, 5, 4)


def test_the_summary_is_made_of_builtin_types(reference) -> None:
    result = evaluate_climate(
        true_field,
        reference[:500],
        DT,
        members=3,
        duration=1.0,
        solvers=("rk4",),
        exponent=False,
    )
    assert result.summary()["lyapunov_of_field"] is None
    numbers = result.summary()
    assert set(numbers["solvers"]) == {"rk4"}
    assert type(numbers["kl"]) is float
    assert len(result.rows()) == 6


def test_members_are_bounded_by_the_box_of_the_truth_and_a_margin() -> None:
    u = torch.tensor([[0.0, 0.0], [2.0, 4.0]])
    u_hat = torch.ones(6, 4, 2)
    u_hat[3, 1, 0] = 2.9
    u_hat[3:, 2, 0] = 3.1
    u_hat[2:, 3, 1] = math.nan
    result = boundedness(u_hat, u, margin=0.5)
    assert result.bounded.tolist() == [True, True, False, False]
    assert result.leaves_at.tolist() == [6, 6, 3, 2]
    assert result.share == 0.5


def test_members_that_return_count_as_unbounded() -> None:
    u_hat = torch.zeros(5, 1, 1)
    u_hat[2] = 100.0
    result = boundedness(u_hat, torch.tensor([[-1.0], [1.0]]))
    assert result.leaves_at.tolist() == [2] and result.share == 0.0


def test_only_accurate_solvers_agree_on_the_climate() -> None:
    system = Lorenz63()
    starts = system.simulate(20, 1.0)
    t = torch.arange(300, dtype=torch.float64) * 0.05
    rows = solver_robustness(
        system.field, starts, t, methods=("dopri5", "rk4", "euler"), tolerance=1e-5
    )
    assert [row.method for row in rows] == ["dopri5", "rk4", "euler"]
    first, second, coarse = rows
    assert first.diverged == second.diverged == 0.0
    assert first.distance == pytest.approx(0.0, abs=1e-12)
    assert second.distance < 0.1
    # Euler steps of 0.05 leave the attractor.
    assert coarse.diverged == 1.0 and coarse.distance == math.inf


def test_the_distance_may_be_chosen() -> None:
    starts = torch.ones(2, 1, dtype=torch.float64)
    rows = solver_robustness(
        lambda t, u: -u,
        starts,
        [0.0, 1.0],
        reference=starts,
        methods=("euler",),
        distance=lambda u_hat, u: (u_hat[-1] - u).abs().max().item(),
    )
    assert rows[0].distance == 1.0


def test_bounds_refuse_states_of_another_shape() -> None:
    u = torch.randn(5, 3, 2)
    with pytest.raises(ValueError, match="end in the same state"):
        boundedness(u, u[..., :1])
