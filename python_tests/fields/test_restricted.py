"""The registry of restricted fields: restrictions from outside of the package."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from trajectories import lorenz63
from wpnode_ext import WPNODE, load
from wpnode_ext.fields import (
    RESTRICTIONS,
    LibraryField,
    LinearField,
    RestrictedField,
)

DT = 0.01
FACTORS = torch.tensor([1.0, -2.0, 0.5])


class Proportional(RestrictedField):
    """Entries of the velocity that are multiples of one function of the state."""

    factors: Tensor

    def __init__(self, base: LinearField, factors: Tensor) -> None:
        super().__init__(base, base.n_features)
        self.register_buffer("factors", factors.to(base.coefficients))

    @property
    def basis(self) -> Tensor:  # type: ignore[override]
        eye = torch.eye(self.base.n_features).to(self.factors)
        return eye[:, None] * self.factors[:, None]

    def _make_head(self) -> Tensor:
        return self.coefficients * self.factors

    def _expand(self, phi: Tensor) -> Tensor:
        return phi[..., None, :] * self.factors[:, None]


@pytest.fixture
def outside() -> Iterator[None]:
    """A restriction that no file of the package knows."""
    RESTRICTIONS.add(
        "Proportional", lambda base, weights: Proportional(base, weights["factors"])
    )
    yield
    RESTRICTIONS.remove("Proportional")


def test_a_restriction_from_outside_is_fitted_saved_and_loaded(
    tmp_path, outside
) -> None:
    v = lorenz63(400, DT)
    model = WPNODE(
        field=Proportional(LibraryField(3, 2), FACTORS),
        method="closed_form",
        config={"field.kind": "library", "refine": False},
        p=4,
        ell=20,
        q=4,
    ).fit(v, DT)
    u = v[:5].to(model.field_.coefficients.dtype)
    f = model.field_(torch.zeros(()), u)
    torch.testing.assert_close(f, f[:, :1] * FACTORS.to(f))
    assert f.abs().max() > 0

    model.save(tmp_path / "model.pt")
    again = load(tmp_path / "model.pt")
    assert type(again.field_) is Proportional
    assert torch.equal(again.field_(torch.zeros(()), u), f)
