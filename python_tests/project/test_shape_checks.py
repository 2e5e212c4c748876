"""Shape checks catch calls that would broadcast by mistake."""

import pytest
import torch
from jaxtyping import Float, TypeCheckError
from torch import Tensor

import shape_checks
from wpnode_ext.ops import reference


def test_conflicting_sizes_raise_where_torch_would_broadcast() -> None:
    f, w = torch.ones(1, 9, 2), torch.ones(5)
    assert reference.squared_residual(f, torch.zeros(1, 5, 2), w) == 5 * 2 * 25
    with pytest.raises(TypeCheckError):
        reference.squared_residual(f, torch.zeros(1, 5, 1), w)


def test_hints_without_shapes_are_ignored() -> None:
    @shape_checks.check
    def twice(x: Float[Tensor, " N"], times: int = 2) -> Float[Tensor, " N"]:
        return times * x

    assert shape_checks.names_a_shape(Float[Tensor, "N D"] | None)
    assert not shape_checks.names_a_shape(dict[str, float])
    assert twice(torch.ones(3), 2.5).tolist() == [2.5, 2.5, 2.5]  # type: ignore[arg-type]
