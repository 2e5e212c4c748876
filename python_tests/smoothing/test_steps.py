"""One step of the model: its derivative against finite differences."""

import pytest
import torch
from torch import Tensor

from wpnode_ext.fields import LibraryField
from wpnode_ext.smoothing.steps import ModelStep


@pytest.mark.parametrize("substeps", [1, 2])
def test_derivatives_of_a_step_are_those_of_finite_differences(substeps: int) -> None:
    field = LibraryField(3, 2).double()
    torch.nn.init.normal_(field.coefficients)
    step = ModelStep(field, torch.Size([3]), substeps=substeps)
    u = torch.randn(4, 3, dtype=torch.float64)
    t, h = torch.zeros(4).double(), torch.tensor([0.01, 0.02, 0.05, 0.1]).double()
    ahead, slope = step.linearise(u, t, h)
    torch.testing.assert_close(ahead, step(u, t, h))
    for j in range(3):
        nudge = 1e-5 * torch.eye(3).double()[j]
        column = (step(u + nudge, t, h) - step(u - nudge, t, h)) / 2e-5
        torch.testing.assert_close(slope[:, :, j], column, rtol=1e-6, atol=1e-8)


def test_forward_mode_and_chained_jacobians_agree() -> None:
    field = LibraryField(3, 2).double()
    torch.nn.init.normal_(field.coefficients)
    u = torch.randn(5, 3, dtype=torch.float64)
    t, h = torch.zeros(5).double(), torch.full((5,), 0.05).double()
    state = torch.Size([3])

    class Known:
        def __call__(self, t: object, u: Tensor) -> Tensor:
            return field(0.0, u)

        def jacobian(self, u: Tensor) -> Tensor:
            return torch.func.vmap(torch.func.jacrev(field.at))(u)

    chained = ModelStep(Known(), state, substeps=2).linearise(u, t, h)
    plain = ModelStep(lambda t, u: field(0.0, u), state, substeps=2)
    forward = plain.linearise(u, t, h)
    torch.testing.assert_close(chained[0], forward[0])
    torch.testing.assert_close(chained[1], forward[1])
