"""The registry of fields: kinds of the package and kinds from outside of it."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from trajectories import lorenz63
from wpnode_ext import WPNODE, load
from wpnode_ext.fields import (
    FIELDS,
    Field,
    FieldConfig,
    FieldKind,
    LinearField,
    make_field,
)
from wpnode_ext.fields.factory import count_weights
from wpnode_ext.model.export import export_field

DT = 0.01
WEAK = {"p": 4, "ell": 20, "q": 4}


class Products(LinearField):
    """Linear in the products of all pairs of entries, the entries and 1."""

    def __init__(self, dim: int, *, constant: float, forcing_dim: int) -> None:
        super().__init__(forcing_dim)
        self.dim, self.constant = dim, constant
        count = dim * dim + dim + 1
        self.coefficients = nn.Parameter(torch.zeros(count, dim))

    def features(self, u: Tensor, x: Tensor | None = None) -> Tensor:
        pairs = (u[..., :, None] * u[..., None, :]).flatten(-2)
        ones = torch.full_like(u[..., :1], self.constant)
        return torch.cat([ones, u, pairs], -1)


class Rotation(Field):
    """``A u`` with an antisymmetric A."""

    def __init__(self, dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(dim, dim, generator=generator))

    def at(self, u: Tensor, x: Tensor | None = None) -> Tensor:
        return u @ (self.matrix - self.matrix.T)


@pytest.fixture
def outside() -> Iterator[None]:
    """Two kinds that no file of the package knows."""

    def products(config: FieldConfig, shape, inputs, generator) -> Products:
        return Products(shape[0], forcing_dim=inputs, **config.options)

    def rotation(config: FieldConfig, shape, inputs, generator) -> Rotation:
        return Rotation(shape[0], generator)

    FIELDS.add("products", FieldKind(products, linear=True))
    FIELDS.add("rotation", FieldKind(rotation))
    yield
    FIELDS.remove("products")
    FIELDS.remove("rotation")


@pytest.mark.parametrize(
    ("kind", "options", "method"),
    [
        ("products", {"constant": 2.0}, "closed_form"),
        ("products", {"constant": 2.0}, "wp"),
        ("rotation", {}, "wp"),
    ],
)
def test_a_kind_from_outside_is_fitted_saved_loaded_and_exported(
    tmp_path, outside, kind: str, options: dict[str, float], method: str
) -> None:
    v = lorenz63(400, DT)
    config = {"field.options": options, "refine": False}
    if method == "wp":
        config |= {"optim.epochs": 2, "validation.fraction": 0.0}
    model = WPNODE(field=kind, method=method, config=config, **WEAK)
    model.fit(v, DT)
    u = v[:5].to(next(model.field_.parameters()).dtype)
    expected = model.physical_field_(torch.zeros(()), u)
    assert (model.config_.field.kind, model.config_.field.options) == (kind, options)

    model.save(tmp_path / "model.pt")
    again = load(tmp_path / "model.pt")
    assert type(again.field_) is type(model.field_)
    torch.testing.assert_close(again.physical_field_(torch.zeros(()), u), expected)

    export_field(model, tmp_path / "field.pt2", dtype=u.dtype)
    program = torch.export.load(tmp_path / "field.pt2").module()
    torch.testing.assert_close(program(torch.zeros(()).to(u), u), expected)


def test_the_method_of_a_kind_from_outside_follows_from_its_properties(outside) -> None:
    v, options = lorenz63(300, DT), {"constant": 1.0}
    config = {"field.options": options, "refine": False}
    model = WPNODE(field="products", config=config, **WEAK).fit(v, DT)
    assert model.config_.method == "closed_form"
    config = {"optim.epochs": 1, "refine": False}
    model = WPNODE(field="rotation", config=config, **WEAK).fit(v, DT)
    assert model.config_.method == "wp"


@pytest.mark.parametrize("kind", list(FIELDS))
def test_properties_of_every_kind_are_those_of_its_field(kind: str) -> None:
    config = FieldConfig(kind=kind)
    field = make_field(config, (8,), 1, torch.Generator().manual_seed(0))
    entry = FIELDS.find(kind)
    assert entry.linear == isinstance(field, LinearField)
    assert entry.shared == field.same_at_sites
    numbers = [*field.parameters(), *field.buffers()]
    stored = sum(x.numel() for x in numbers)
    assert 0 < count_weights(config, (8,), 1) <= 2 * stored + 100


def test_errors_suggest_the_nearest_kind_to_a_misspelt_one() -> None:
    for make in (
        lambda: FieldConfig(kind="librari"),
        lambda: WPNODE(field="librari"),
        lambda: WPNODE(config={"field.kind": "librari"}),
    ):
        with pytest.raises(ValueError, match=r"`field\.kind` must .*mean 'library'\?"):
            make()


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ({"kind": "library", "degree": 10**9}, (3,)),
        ({"kind": "library", "degree": 10**9}, (10**9,)),
        ({"kind": "ring_library", "degree": 10**9}, (40,)),
        ({"kind": "features", "features": 10**9}, (3,)),
    ],
)
def test_huge_fields_are_counted_without_being_made(settings, shape) -> None:
    assert count_weights(FieldConfig(**settings), shape, 0) >= 10**9
