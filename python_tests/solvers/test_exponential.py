"""Forecasts of held-out data by fields with modes that decay within a sample."""

import pytest
import torch
from torch import nn

from wpnode_ext.data import lay_end_to_end
from wpnode_ext.fields import EquivariantField, Forcing, LibraryField, MLPField
from wpnode_ext.solvers.exponential import STIFFNESS, stiff_part
from wpnode_ext.training.validation import ForecastValidation

DT = 0.1
# A rotation, and a mode that follows the square of its first entry at a rate of 60.
RATES = torch.tensor([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, -60.0]])


class Slaved(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.rates = nn.Parameter(RATES.to(dtype))

    def forward(self, t, u):
        square = torch.zeros_like(u)
        square[..., 2] = 60 * u[..., 0].square()
        return u @ self.rates.T + square


def slaved(n: int, dtype: torch.dtype) -> torch.Tensor:
    """The attractor of the field above: the third entry solves its own equation."""
    t = DT * torch.arange(n, dtype=torch.float64)
    x, y = torch.cos(t), -torch.sin(t)
    # z' = -60 z + 60 cos^2 t = -60 z + 30 + 30 cos 2t, in the long run:
    z = 0.5 + 30 * (60 * torch.cos(2 * t) + 2 * torch.sin(2 * t)) / (60**2 + 4)
    return torch.stack([x, y, z], 1).to(dtype)


@pytest.mark.parametrize("dt", [None, DT])
def test_the_exact_field_forecasts_stiff_data(dtype, dt) -> None:
    v = slaved(200, dtype)
    times = DT * torch.arange(200, dtype=torch.float64)
    record = lay_end_to_end(v, dt=dt, t=times if dt is None else None)
    error = ForecastValidation(record, starts=8)(Slaved(dtype))["val_error"]
    # Irregular times are left to RK4, which explodes.
    assert error > 0.9 if dt is None else error < 1e-2


@pytest.mark.parametrize("restricted", [False, True])
def test_heads_compared_together_score_as_each_alone(restricted) -> None:
    v = slaved(200, torch.float64)
    field = LibraryField(3, 2, dtype=torch.float64)
    head = torch.zeros(10, 3, dtype=torch.float64)
    head[1:4] = RATES.double().T
    head[4, 2] = 60.0
    slow = head.clone()
    slow[:, 2] = 0.0
    heads = torch.stack([head, slow, 0.5 * slow, head * torch.nan])
    if restricted:
        # The same heads, as combinations of three of them.
        basis = torch.stack([head, slow, slow.flip(0)], -1)
        field = EquivariantField(field, basis)
        heads = torch.eye(3, dtype=torch.float64)[:, :, None]
    validate = ForecastValidation(lay_end_to_end(v, dt=DT), starts=8, horizon=30)
    field.set_coefficients(0.1 * heads[1])
    before = field.coefficients.clone()
    together = validate.compare(field, heads)
    assert torch.equal(field.coefficients, before)
    for values, score in zip(heads, together.tolist(), strict=True):
        field.set_coefficients(values)
        assert score == pytest.approx(validate(field)["val_error"], rel=1e-9)


def test_exponential_steps_are_kept_for_fields_that_need_them() -> None:
    zero, now = torch.zeros(3), torch.tensor(0.0).double()
    assert stiff_part(Slaved(torch.float32), now, zero, DT) is not None
    assert stiff_part(Slaved(torch.float32), now, zero, 0.04) is None
    assert stiff_part(MLPField(3, (8,)), now, zero, DT) is None
    wide = STIFFNESS.largest + 1
    decaying = nn.Linear(wide, wide, bias=False)
    nn.init.eye_(decaying.weight).data.mul_(-1e3)
    far = torch.zeros(wide)
    assert stiff_part(lambda t, u: decaying(u), now, far, DT) is None
    assert (
        stiff_part(lambda t, u: -1e3 * u, now, far[: STIFFNESS.largest], DT) is not None
    )


def test_fields_that_cannot_be_differentiated_are_left_to_runge_kutta() -> None:
    class Opaque(torch.autograd.Function):
        @staticmethod
        def forward(ctx, u):
            return -1e3 * u

    def field(t, u):
        return Opaque.apply(u)

    assert stiff_part(field, torch.tensor(0.0), torch.zeros(3), DT) is None


def test_inputs_are_looked_up_at_the_times_of_the_starts() -> None:
    """``u' = -60 (u - x(t))`` with x = t: u follows 1/60 behind."""
    field = LibraryField(1, 1, forcing_dim=1, dtype=torch.float64)
    field.set_coefficients(torch.tensor([[0.0], [-60.0], [60.0]]))
    times = DT * torch.arange(100, dtype=torch.float64)
    field.forcing = Forcing(times, times[:, None])
    record = lay_end_to_end((times - 1 / 60)[:, None], dt=DT)
    assert ForecastValidation(record, starts=5)(field)["val_error"] < 1e-6
