"""Scalers: affine maps of states, and fields in scaled and physical coordinates."""

import io

import pytest
import torch
from torch import Tensor, nn

from trajectories import normal
from wpnode_ext.coordinates.scaling import (
    SCALERS,
    IdentityScaler,
    MinMaxScaler,
    StandardScaler,
    make_scaler,
    scaler_from_state_dict,
)
from wpnode_ext.settings.config import TrainConfig, resolve
from wpnode_ext.systems import Lorenz63

KINDS = ("minmax", "standard", "identity")


def data() -> torch.Tensor:
    return normal(200, 3) * torch.tensor([1.0, 5.0, 20.0]) + 3


def test_min_max_fills_the_unit_interval() -> None:
    scaler = MinMaxScaler().fit(v := data())
    s = scaler.transform(v)
    assert s.amin(0).tolist() == [0.0] * 3
    assert s.amax(0).tolist() == pytest.approx([1.0] * 3)
    whole = MinMaxScaler("whole").fit(v).transform(v)
    assert (whole.min(), whole.max()) == (0.0, 1.0)


def test_standard_has_mean_0_and_deviation_1() -> None:
    v = data()
    s = StandardScaler().fit(v).transform(v)
    assert s.mean(0).abs().max() < 1e-12
    assert s.std(0, correction=0).tolist() == pytest.approx([1.0] * 3)


def test_channels_are_scaled_by_all_of_their_sites() -> None:
    v = torch.stack([data(), 10 * data()], 1)
    scaler = StandardScaler("channel").fit(v)
    assert scaler.scale.shape == (2, 1)
    s = scaler.transform(v)
    assert s.mean((0, 2)).abs().max() < 1e-12
    assert s.std((0, 2), correction=0).tolist() == pytest.approx([1.0, 1.0])
    again = scaler_from_state_dict(scaler.state_dict())
    assert torch.equal(again.inverse(s), scaler.inverse(s))


@pytest.mark.parametrize("per", ["component", "channel", "whole"])
@pytest.mark.parametrize("kind", KINDS)
def test_inverse_undoes_transform(kind: str, per: str) -> None:
    v = data()
    scaler = make_scaler(kind, per).fit(v)
    torch.testing.assert_close(scaler.inverse(scaler.transform(v)), v)
    single = v.float()
    assert scaler.transform(single).dtype == torch.float32


@pytest.mark.parametrize("kind", KINDS)
def test_fields_transform_as_velocities_do(kind: str) -> None:
    system = Lorenz63()
    u = system.simulate(50, 0.05)
    scaler = make_scaler(kind).fit(u)
    scaled = scaler.to_scaled(system.field)
    # Along a path, the derivative of the scaled state is the scaled field.
    state = u[20]
    path = torch.func.jvp(scaler.transform, (state,), (system.field(0.0, state),))[1]
    torch.testing.assert_close(scaled(0.0, scaler.transform(state)), path)
    physical = scaler.to_physical(scaled)
    torch.testing.assert_close(physical(0.0, u), system.field(0.0, u))


def test_a_physical_field_is_a_module_with_the_weights_of_the_learned_one() -> None:
    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, t, u):
            return self.layer(u)

    field = Linear()
    physical = StandardScaler().fit(data()).to_physical(field)
    assert len(list(physical.parameters())) == 2
    out = physical(0.0, torch.randn(4, 3))
    assert out.dtype == torch.float32
    out.sum().backward()
    assert field.layer.weight.grad is not None
    assert physical.double()(0.0, normal(4, 3)).dtype == torch.float64


def test_missing_values_do_not_count() -> None:
    v = data()
    holes = v.clone()
    holes[5, 0] = float("nan")
    without = torch.cat([v[:5], v[6:]])
    for kind in ("minmax", "standard"):
        scaler, expected = make_scaler(kind).fit(holes), make_scaler(kind).fit(without)
        assert scaler.shift[0].item() == pytest.approx(expected.shift[0].item())
        assert scaler.scale[0].item() == pytest.approx(expected.scale[0].item())


def test_a_component_that_never_changes_keeps_its_size() -> None:
    v = torch.full((10, 1), 7.0)
    for kind in ("minmax", "standard"):
        scaler = make_scaler(kind).fit(v)
        assert scaler.scale.item() == 1.0
        assert scaler.transform(v).abs().max() == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_state_passes_through_a_file_that_may_hold_no_code(kind: str) -> None:
    scaler = make_scaler(kind, "whole").fit(data())
    file = io.BytesIO()
    torch.save(scaler.state_dict(), file)
    file.seek(0)
    again = scaler_from_state_dict(torch.load(file, weights_only=True))
    assert type(again) is type(scaler) and again.per == "whole"
    assert torch.equal(again.shift, scaler.shift)
    assert torch.equal(again.scale, scaler.scale)


def test_misuse_is_refused() -> None:
    with pytest.raises(RuntimeError, match="MinMaxScaler is not fitted; call `fit`"):
        MinMaxScaler().transform(data())
    with pytest.raises(
        ValueError, match="`per` must be 'component', 'channel' or 'whole'"
    ):
        IdentityScaler("row")
    with pytest.raises(ValueError, match="`kind` must be one of minmax.*got 'max'"):
        make_scaler("max")
    with pytest.raises(ValueError, match="at least one finite sample.*1 have none"):
        MinMaxScaler().fit(torch.tensor([[1.0, float("nan")]] * 4))
    with pytest.raises(ValueError, match="`v` must not hold infinity"):
        MinMaxScaler().fit(torch.tensor([[float("inf")]]))
    with pytest.raises(ValueError, match="it lacks \\['scale', 'shift'\\]"):
        scaler_from_state_dict({"kind": "minmax", "per": "whole"})


def test_a_scaler_from_outside_is_one_entry() -> None:
    class Halved(IdentityScaler):
        kind = "halved"

        def _statistics(self, v: Tensor) -> tuple[Tensor, Tensor]:
            return torch.zeros_like(v[0]), torch.full_like(v[0], 2.0)

    v = data()
    SCALERS.add("halved", Halved)
    try:
        scaler = make_scaler(TrainConfig(scaler="halved").scaler).fit(v)
        again = scaler_from_state_dict(scaler.state_dict())
        assert type(again) is Halved
        torch.testing.assert_close(again.transform(v), v / 2)
        with pytest.raises(ValueError, match=r"`scaler` must .*mean 'halved'\?"):
            resolve(TrainConfig(scaler="halve"))
    finally:
        SCALERS.remove("halved")
