"""Components that are always zero, and what methods make of them."""

import pytest
import torch

from trajectories import normal
from wpnode_ext.baselines import WeakSINDy, WENDy

DT = 0.05


@pytest.mark.parametrize("kind", [WeakSINDy, WENDy])
def test_a_component_that_is_zero_stays_zero(kind) -> None:
    t = DT * torch.arange(400, dtype=torch.float64)
    noise = 1e-3 * normal(400, 2, seed=0)
    v = torch.stack([t.cos(), -t.sin()], 1) + noise
    v = torch.cat([v, torch.zeros(400, 1)], 1)
    model = kind(degree=2, p=4, ell=20, q=2).fit(v, DT)
    assert model.field_.coefficients.isfinite().all()
    assert not model.field_.coefficients[:, 2].any()
    u = model.forecast(v[0], t[:100])
    assert torch.allclose(u[:, 0], t[:100].cos(), atol=0.05)
    assert not u[:, 2].any()
