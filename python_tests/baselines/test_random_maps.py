"""Random feature maps: ridge regression, rings, weights, layers, accuracy."""

from dataclasses import replace

import pytest
import torch

from trajectories import add_noise, lorenz63, lorenz96, normal
from wpnode_ext.baselines import RFM, Baseline, DeepRFM, DeepSkip, SkipRFM, load
from wpnode_ext.baselines.random_maps import RandomFeatureMap, RidgeRegression
from wpnode_ext.fields import RingGroups

DT = 0.01


def inside(model: Baseline) -> RandomFeatureMap:
    assert isinstance(model.field_, RandomFeatureMap)
    return model.field_


@pytest.fixture(scope="module")
def lorenz() -> torch.Tensor:
    return lorenz63(6000, DT, seed=1)


@pytest.fixture(scope="module")
def ring() -> torch.Tensor:
    return lorenz96(800, DT, seed=1, sites=12)


class TestRidgeRegression:
    def test_solves_the_normal_equations(self) -> None:
        a = normal(200, 30)
        y = normal(200, 2)
        beta = 0.3
        system = RidgeRegression(200, 30)
        system.add(a, y)
        c = system.solve(beta)
        left = a.T @ a @ c + beta * c
        assert torch.allclose(left, a.T @ y, rtol=1e-8, atol=1e-9)

    def test_solves_the_normal_equations_of_random_features(self, lorenz) -> None:
        model = RFM(width=100, ridge=1e-8, scaler="identity").fit(lorenz, DT)
        x, y = lorenz[:-1], lorenz[1:]
        r = torch.tanh(x @ inside(model).w[0].T + inside(model).b[0])
        c = inside(model).c[0]
        miss = r.T @ (r @ c - y) + 1e-8 * c
        assert miss.norm() < 1e-8 * (r.T @ y).norm()

    def test_streams_like_one_block(self) -> None:
        a = torch.tanh(torch.randn(300, 20)).double()
        y = normal(300, 3)
        once, parts = RidgeRegression(300, 20), RidgeRegression(300, 20)
        once.add(a, y)
        for rows, values in zip(a.split(37), y.split(37), strict=True):
            parts.add(rows, values)
        for beta in (0.0, 1e-6, 1.0):
            torch.testing.assert_close(
                once.solve(beta), parts.solve(beta), rtol=1e-9, atol=1e-11
            )

    def test_large_problems_use_normal_equations(self) -> None:
        a, y = normal(100, 5), normal(100, 1)
        small, large = RidgeRegression(100, 5), RidgeRegression(100, 5, qr_work=0)
        for system in (small, large):
            system.add(a, y)
        torch.testing.assert_close(small.solve(0.1), large.solve(0.1))


class TestRingGroups:
    def test_sees_its_neighbours_around_the_ring(self) -> None:
        groups = RingGroups(8, 2, 1)
        u = torch.arange(8.0)
        assert groups.inputs(u)[0].tolist() == [6, 7, 0, 1, 2, 3]
        assert groups.own(u)[3].tolist() == [6, 7]

    def test_refuses_groups_that_do_not_fit(self) -> None:
        with pytest.raises(ValueError, match="`group` must divide the 10 components"):
            RingGroups(10, 3, 1)
        with pytest.raises(ValueError, match="`reach` must be >= 0"):
            RingGroups(8, 2, 2)


class TestInnerWeights:
    @pytest.mark.parametrize("kind", [RFM, DeepSkip])
    def test_arguments_stay_where_tanh_bends(self, kind, lorenz) -> None:
        model = kind(width=50, ridge=1e-6).fit(lorenz[:500], DT)
        v = model.scaler_.transform(lorenz[:500])
        low, high = v.amin(0), v.amax(0)
        corners = torch.cartesian_prod(*torch.stack([low, high], 1))
        if kind is DeepSkip:
            pairs = [(a, b) for a in corners for b in corners]
            corners = torch.stack([torch.cat(pair) for pair in pairs])
        w, b = inside(model).w[0], inside(model).b[0]
        size = (corners @ w.T + b).abs()
        assert size.min() >= 0.4 - 1e-12
        assert size.max() <= 3.5 + 1e-12


class TestLayers:
    def test_layers_drawn_anew_stay_in_the_box_too(self, lorenz) -> None:
        model = DeepSkip(width=50, depth=3, ridge=1e-6, shared_inner=False)
        v = model.fit(lorenz[:500], DT).scaler_.transform(lorenz[:500])
        low, high = v.amin(0).repeat(2), v.amax(0).repeat(2)
        w, b = inside(model).w, inside(model).b
        # The least and the largest of a linear function over the box.
        middle = w @ ((low + high) / 2) + b
        reach = w.abs() @ ((high - low) / 2)
        assert (middle.abs() - reach).min() >= 0.4 - 1e-12
        assert (middle.abs() + reach).max() <= 3.5 + 1e-12

    def test_one_deep_layer_that_sees_the_state_alone_is_skiprfm(
        self, lorenz, monkeypatch
    ) -> None:
        flat = SkipRFM(width=40, ridge=1e-6, seed=3).fit(lorenz[:500], DT)
        other = inside(flat)

        def draw(self, module, v, generator) -> None:
            module.w[0] = torch.cat([other.w[0], torch.zeros(40, 3).double()], dim=1)
            module.b[0] = other.b[0]

        monkeypatch.setattr(DeepSkip, "_draw", draw)
        wide = DeepSkip(width=40, depth=1, ridge=1e-6, seed=3).fit(lorenz[:500], DT)
        u = torch.rand(7, 3).double()
        # Products over three and over six columns may round differently.
        close = {"rtol": 0, "atol": 1e-10}
        torch.testing.assert_close(inside(wide).c, other.c, **close)
        torch.testing.assert_close(inside(wide)(0.0, u), other(0.0, u), **close)

    @pytest.mark.parametrize("shared", [True, False])
    def test_residual_does_not_grow_with_depth(self, lorenz, shared) -> None:
        v = lorenz[:1500]
        model = DeepSkip(width=30, depth=4, ridge=1e-9, shared_inner=shared).fit(v, DT)
        s = model.scaler_.transform(v)
        x, y, wanted = s[:-1], s[:-1], s[1:]
        x, y, wanted = x[:, None], y[:, None], wanted[:, None]
        sizes = [(wanted - y).norm()]
        for layer in range(4):
            y = inside(model).apply_layer(layer, x, y)
            sizes.append((wanted - y).norm())
        assert all(
            b <= a * (1 + 1e-9) for a, b in zip(sizes[:-1], sizes[1:], strict=True)
        )
        same = torch.equal(inside(model).w[0], inside(model).w[1])
        assert same == shared

    def test_forecast_iterates_the_map(self, lorenz) -> None:
        model = DeepRFM(width=60, depth=2, ridge=1e-8).fit(lorenz[:1000], DT)
        path = model.forecast(lorenz[0], DT * torch.arange(4))
        s = model.scaler_.transform(lorenz[:1])
        for n in range(1, 4):
            x, y = s[:, None], s[:, None]
            for layer in range(2):
                y = inside(model).apply_layer(layer, x, y)
            s = y[:, 0]
            torch.testing.assert_close(path[n], model.scaler_.inverse(s)[0])


class TestLocalMaps:
    def test_commutes_with_turning_the_ring(self, ring) -> None:
        model = DeepSkip(width=60, depth=2, ridge=1e-6, group=2, reach=1).fit(ring, DT)
        u = ring[10]
        ahead = model.forecast(u, DT * torch.arange(3))
        turned = model.forecast(u.roll(4), DT * torch.arange(3))
        torch.testing.assert_close(turned, ahead.roll(4, -1), rtol=1e-10, atol=1e-10)

    def test_middle_group_alone_has_fewer_rows(self, ring) -> None:
        pooled = SkipRFM(width=20, ridge=1e-6, group=2, reach=1).fit(ring, DT)
        one = SkipRFM(width=20, ridge=1e-6, group=2, reach=1, pool=False).fit(ring, DT)
        ratio = pooled.cost_.evaluations / one.cost_.evaluations
        assert ratio == pytest.approx(6, rel=0.01)


def lorenz63_forecasts(model: Baseline, noise: float) -> float:
    """Mean valid prediction time after learning from 10^4 samples."""
    u = lorenz63(15_000, DT, seed=1)
    v = u[:10_000]
    if noise:
        v, _ = add_noise(v, noise, seed=2)
    options = {"lyapunov_exponent": 0.91, "horizon": 12 / 0.91, "starts": 30}
    return model.fit(v, DT).evaluate(u[10_000:], DT, **options).vpt.mean


class TestAccuracy:
    @pytest.mark.parametrize(
        "model", [SkipRFM(width=300, ridge=1e-8), DeepSkip(depth=1, ridge=1e-8)]
    )
    def test_clean_lorenz63(self, model) -> None:
        assert lorenz63_forecasts(replace(model, scaler="identity"), 0.0) > 6

    @pytest.mark.slow
    def test_clean_lorenz63_in_four_layers(self) -> None:
        model = DeepSkip(depth=4, ridge=1e-8, scaler="identity")
        assert lorenz63_forecasts(model, 0.0) > 6

    @pytest.mark.slow
    @pytest.mark.parametrize("ridge", [None, 1e-8])
    @pytest.mark.parametrize("depth", [1, 4])
    def test_lorenz63_at_5_percent_noise(self, depth, ridge) -> None:
        model = DeepSkip(depth=depth, ridge=ridge)
        assert 0.3 < lorenz63_forecasts(model, 0.05) < 0.7

    def test_ridge_grows_with_the_noise(self, lorenz) -> None:
        noisy = lorenz + 0.8 * normal(*lorenz.shape)
        clean = SkipRFM(width=100).fit(lorenz, DT)
        rough = SkipRFM(width=100).fit(noisy, DT)
        assert rough.ridge_ > 10 * clean.ridge_


class TestInterface:
    def test_save_and_load(self, lorenz, tmp_path) -> None:
        model = DeepSkip(width=40, depth=2, ridge=1e-7).fit(lorenz[:800], DT)
        model.save(tmp_path / "model.pt")
        again = load(tmp_path / "model.pt")
        assert isinstance(again, DeepSkip)
        assert again.ridge == 1e-7
        t = DT * torch.arange(20)
        assert torch.equal(again.forecast(lorenz[5], t), model.forecast(lorenz[5], t))
        assert again.cost_ == model.cost_

    def test_same_seed_same_bits(self, lorenz) -> None:
        first = RFM(width=30, ridge=1e-6, seed=4).fit(lorenz[:400], DT)
        second = RFM(width=30, ridge=1e-6, seed=4).fit(lorenz[:400], DT)
        other = RFM(width=30, ridge=1e-6, seed=5).fit(lorenz[:400], DT)
        assert torch.equal(inside(first).c, inside(second).c)
        assert not torch.equal(inside(first).c, inside(other).c)

    def test_a_map_is_tied_to_its_step(self, lorenz) -> None:
        model = RFM(width=30, ridge=1e-6).fit(lorenz[:400], DT)
        with pytest.raises(ValueError, match="multiples of 0.01"):
            model.forecast(lorenz[0], torch.tensor([0.0, 0.015]))
        with pytest.raises(ValueError, match="`dt` must be 0.01"):
            model.evaluate(lorenz, 0.02)
        with pytest.raises(TypeError, match="no weak residual"):
            model.goodness_of_fit(lorenz, DT)

    def test_gaps_and_borders_make_no_pairs(self, lorenz) -> None:
        v = lorenz[:300].clone()
        v[100:110] = float("nan")
        model = RFM(width=10, ridge=1e-6).fit([v, lorenz[300:500]], DT)
        # Features of a pair are computed to solve for the layer, and to apply it.
        assert model.cost_.evaluations == 2 * (99 + 189 + 199)

    def test_refuses_unsuitable_data(self, lorenz) -> None:
        with pytest.raises(ValueError, match="equal distances"):
            t = torch.rand(100).double().cumsum(0)
            RFM().fit(lorenz[:100], t=t)
        with pytest.raises(RuntimeError, match="not fitted"):
            RFM().forecast(lorenz[0], torch.tensor([0.0, 0.01]))
        with pytest.raises(ValueError, match="`ridge` must be given"):
            RFM(held_out=0.0).fit(lorenz[:100], DT)

    def test_the_score_of_a_model_exceeds_that_of_a_constant(self, lorenz) -> None:
        model = SkipRFM(width=200, ridge=1e-9).fit(lorenz[:4000], DT)
        assert model.score(lorenz[4000:], DT) > 0.5
        inside(model).c.zero_()
        assert model.score(lorenz[4000:], DT) < 0.3
