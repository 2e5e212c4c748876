"""Evaluations, the unit of work of all methods: states at which a field is computed."""

import pytest
import torch

from trajectories import normal
from wpnode_ext import WPNODE
from wpnode_ext.baselines import RAFDA, RFM, WKRR, WeakSINDy
from wpnode_ext.baselines.comparison import run_job
from wpnode_ext.baselines.evaluations import counted_evaluations
from wpnode_ext.baselines.protocol import Job, Protocol
from wpnode_ext.baselines.random_maps import RandomFeatureMap
from wpnode_ext.data import make_series
from wpnode_ext.fields import ConvField, LibraryField, MLPField

DT = 0.05


def oscillation(n: int) -> torch.Tensor:
    t = DT * torch.arange(n, dtype=torch.float64)
    return torch.stack([t.cos(), -t.sin()], 1)


class TestCounter:
    def test_states_of_fields_count(self) -> None:
        field = MLPField(3, (4,))
        with counted_evaluations() as counter:
            field(0.0, torch.zeros(5, 7, 3))
            field(0.0, torch.zeros(3))
        field(0.0, torch.zeros(9, 3))
        assert counter[0] == 36

    def test_one_call_counts_a_state_once(self) -> None:
        field = LibraryField(3, 2)
        with counted_evaluations() as counter:
            field.features(torch.zeros(10, 3))
            field.jacobian(torch.zeros(100, 3))
            field.value_and_jacobian(torch.zeros(1000, 3))
            field.at(torch.zeros(10_000, 3))
            field.combined(torch.zeros(100_000, 3), torch.zeros(field.n_features, 2))
            with pytest.raises((RuntimeError, IndexError)):
                field.at(torch.zeros(1, 2))
            field.at(torch.zeros(2, 3))
        assert counter[0] == 111_113

    def test_states_of_several_axes_count_once(self) -> None:
        field = ConvField(2)
        with counted_evaluations() as counter:
            field(0.0, torch.zeros(5, 2, 8))
        assert counter[0] == 5

    def test_maps_of_several_layers_count_once(self) -> None:
        ring = RandomFeatureMap(8, DT, 5, 3, skip=True, carry=True, group=2, reach=1)
        with counted_evaluations() as counter:
            ring(0.0, torch.zeros(6, 8).double())
        assert counter[0] == 6

    def test_counters_nest_and_leave_fields_as_they_were(self) -> None:
        plain = {name: vars(LibraryField)[name] for name in ("at", "features")}
        with counted_evaluations() as outer:
            with counted_evaluations() as inner:
                LibraryField(2, 1)(0.0, torch.zeros(4, 2))
            LibraryField(2, 1)(0.0, torch.zeros(1, 2))
        assert (outer, inner) == ([5], [4])
        assert {name: vars(LibraryField)[name] for name in plain} == plain


class TestMethods:
    def test_maps_count_pairs_members_and_choices(self) -> None:
        v = oscillation(300)
        fixed = RFM(width=10, ridge=1e-6).fit(v, DT).cost_.evaluations
        assert fixed == 2 * 299
        chosen = RFM(width=10).fit(v, DT).cost_.evaluations
        # 29 ridges, each with forecasts of held-out data.
        assert chosen > fixed + 29 * 10
        filtered = RAFDA(width=10, members=7).fit(v, DT).cost_.evaluations
        assert filtered == fixed + 7 * 299

    def test_kernels_count_states(self) -> None:
        model = WKRR(eps=1.0, ridge=1e-6).fit(oscillation(300), DT)
        assert model.cost_.evaluations == 299

    def test_libraries_count_samples(self) -> None:
        options = {"p": 4, "ell": 30, "q": 1}
        model = WeakSINDy(degree=2, **options).fit(oscillation(300), DT)
        assert model.cost_.evaluations == 300

    def test_the_closed_form_counts_features_and_derivatives(self) -> None:
        v = oscillation(400)
        v = v + 0.02 * normal(*v.shape, seed=0)
        counts = []
        for refine in (False, True):
            model = WPNODE(method="closed_form", field="library", refine=refine)
            with counted_evaluations() as counter:
                model.fit(v, DT)
            counts.append(counter[0])
        assert counts[0] >= 400
        # Its rounds take more than a hundred evaluations of every sample.
        assert counts[1] > counts[0] + 100 * 400

    def test_rows_of_a_comparison_hold_evaluations(self) -> None:
        protocol = Protocol(
            series=make_series(oscillation(600), dt=DT),
            starts=2,
            horizon=1.0,
            options={"rfm": {"ridge": 1e-6, "width": 10}},
        )
        learned = protocol.data(Job("rfm", 0.0, 0))[0].n_samples
        row = run_job(Job("rfm", 0.0, 0), protocol)
        assert row["evaluations"] == 2 * (learned - 1)
