"""Settings of methods: zero is a number, and what cannot work is refused at once."""

from typing import Any

import pytest
import torch

from wpnode_ext.baselines import MPNODE, RAFDA, VFNODE, WKRR
from wpnode_ext.baselines.wkrr import WeakKernelProblem, kernel

DT = 0.05
AHEAD = torch.tensor([0.0, DT], dtype=torch.float64)


def oscillation(n: int) -> torch.Tensor:
    t = DT * torch.arange(n, dtype=torch.float64)
    return torch.stack([t.cos(), -t.sin()], 1)


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        (WKRR, {"ridge": -1e-3}, "`ridge` must be >= 0; got -0.001"),
        (WKRR, {"eps": 0.0}, "`eps` must be > 0; got 0.0"),
        (WKRR, {"centres": 0}, "`centres` must be >= 1"),
        (RAFDA, {"members": 1}, "`members` must be >= 2; got 1"),
        (RAFDA, {"spread": -1.0}, "`spread` must be >= 0"),
        (RAFDA, {"inflation": 0.0}, "`inflation` must be > 0"),
        (VFNODE, {"segment": 1}, "`segment` must be >= 16; got 1"),
        (VFNODE, {"basis": 0}, "`basis` must be >= 1; got 0"),
        (VFNODE, {"basis_batch": 0}, "`basis_batch` must be >= 1"),
        (MPNODE, {"stages": "oto"}, "`stages` must be >= 1 or 'auto'; got 'oto'"),
        (MPNODE, {"stages": 0}, "`stages` must be >= 1; got 0"),
        (MPNODE, {"stride": 0}, "`stride` must be >= 1"),
        (MPNODE, {"windows": 0}, "`windows` must be >= 1"),
    ],
)
def test_what_cannot_work_is_refused(kind, given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        kind(**given)


def test_words_are_no_numbers() -> None:
    with pytest.raises(TypeError, match="`basis` must be a number; got 'many'"):
        VFNODE(basis="many")  # type: ignore[arg-type]
    assert MPNODE(stages="auto").stages == "auto"


def test_kernel_regression_without_a_ridge() -> None:
    model = WKRR(eps=0.3, ridge=0.0, centres=30).fit(oscillation(300), DT)
    assert model.ridge_ == 0.0
    ahead = model.forecast(oscillation(1)[0], DT * torch.arange(20))
    torch.testing.assert_close(ahead, oscillation(20), atol=0.05, rtol=0)


@pytest.mark.parametrize("centres", [20, 10])
def test_without_a_ridge_the_solution_is_that_of_least_norm(centres: int) -> None:
    torch.manual_seed(0)
    # Twice the same states: half of the kernel matrix is redundant.
    x = torch.randn(10, 2).double().repeat(2, 1)
    part = WeakKernelProblem(x, x.sin(), torch.ones(1).double(), torch.arange(20))
    z = x[:centres]
    found = kernel(x, z, 0.3) @ part.solve(z, 0.3, 0.0)
    torch.testing.assert_close(found, x.sin(), atol=1e-7, rtol=0)


def test_an_ensemble_without_spread_keeps_the_map_of_the_regression(
    monkeypatch,
) -> None:
    def after_a_step(spread: float | None) -> torch.Tensor:
        model = RAFDA(width=20, members=10, sigma=0.01, spread=spread)
        return model.fit(oscillation(100), DT).forecast(oscillation(1)[0], AHEAD)[1]

    kept, learned = after_a_step(0.0), after_a_step(None)
    monkeypatch.setattr(RAFDA, "_assimilate", lambda self, module, series: series.v)
    torch.testing.assert_close(kept, after_a_step(None), rtol=0, atol=1e-6)
    assert not torch.allclose(kept, learned, rtol=0, atol=1e-4)
