"""The ensemble filter against Kalman's, and maps learned with it."""

import pytest
import torch

import trajectories
from trajectories import add_noise, lorenz63, lorenz96
from wpnode_ext.baselines import RAFDA, load
from wpnode_ext.baselines.rafda import (
    analysis,
    centred_noise,
    ensemble_forecast,
    ring_taper,
)

DT = 0.01


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(trajectories.draw(seed))


class TestAnalysis:
    def test_large_ensembles_give_the_kalman_filter(self) -> None:
        # Scalar u = P phi with phi = 1: state and parameter are jointly Gaussian.
        members, eta, v = 50_000, 0.25, 1.75
        draw = generator()
        p = 1.0 + 0.5 * torch.randn(members, generator=draw).double()
        u = p + 0.3 * torch.randn(members, generator=draw).double()
        joint = torch.stack([p, u])
        mean, c = joint.mean(1), torch.cov(joint, correction=0)
        gain = c[:, 1] / (c[1, 1] + eta)
        wanted = mean + gain * (v - mean[1])
        spread = c - gain[:, None] * c[1]
        maps, states = p.clone()[None, :, None], u.clone()[:, None]
        noise = centred_noise(members, torch.tensor([eta]).double(), draw)
        analysis(
            maps,
            states,
            torch.tensor([v]).double(),
            torch.tensor([eta]).double(),
            noise,
        )
        found = torch.stack([maps.flatten(), states.flatten()])
        torch.testing.assert_close(found.mean(1), wanted, rtol=0, atol=1e-6)
        torch.testing.assert_close(
            torch.cov(found, correction=0), spread, rtol=0, atol=1e-2
        )

    def test_a_linear_system_is_filtered_as_by_kalman(self) -> None:
        # u_{n+1} = P u_n with one feature, and an ensemble so narrow that the product
        # is linear over it: the extended filter of (P, u) is exact up to its square.
        size, eta, start = 1e-3, 1e-6, (0.98, 1.3)
        draw = generator(1)
        truth = 1.3 * 0.981 ** torch.arange(1, 21).double()
        observed = truth + eta**0.5 * torch.randn(20, generator=draw).double()

        mean, cov = torch.tensor(start).double(), size**2 * torch.eye(2).double()
        for v in observed:
            slope = torch.stack([torch.tensor([1.0, 0.0]).double(), mean.flip(0)])
            mean = torch.stack([mean[0], mean[0] * mean[1]])
            cov = slope @ cov @ slope.T
            gain = cov[:, 1] / (cov[1, 1] + eta)
            mean = mean + gain * (v - mean[1])
            cov = cov - gain[:, None] * cov[1]

        errors, spreads = [], []
        for members in (100, 10_000, 1_000_000):
            deviations = size * torch.randn(2, members, generator=draw).double()
            p, u = (torch.tensor(start).double()[:, None] + deviations).unbind()
            p, u = p.clone()[None, :, None], u.clone()[:, None]
            level = torch.tensor([eta]).double()
            for v in observed:
                u = ensemble_forecast(p, u[:, None])
                analysis(p, u, v[None], level, centred_noise(members, level, draw))
            found = torch.stack([p.flatten(), u.flatten()])
            scale = cov.diagonal().sqrt()
            errors.append(((found.mean(1) - mean) / scale).abs().max().item())
            miss = torch.cov(found, correction=0) - cov
            spreads.append((miss / scale / scale[:, None]).abs().max().item())
        # In standard deviations of the answer; sampling errors fall like M^(-1/2).
        assert errors[2] < 0.01 and spreads[2] < 0.02
        assert errors[2] < errors[0] / 10 and spreads[2] < spreads[0] / 10

    def test_observations_without_information_change_nothing(self) -> None:
        changes = []
        for size in (1e12, 1e20, 1e28):
            draw = generator()
            p = torch.randn(2, 50, 7, generator=draw).double()
            u = torch.randn(50, 2, generator=draw).double()
            before = p.clone(), u.clone()
            eta = torch.full((2,), size).double()
            analysis(p, u, torch.zeros(2).double(), eta, centred_noise(50, eta, draw))
            pairs = zip((p, u), before, strict=True)
            changes.append(max((a - b).abs().max().item() for a, b in pairs))
        # The noise of the observation grows with it, like the square root.
        assert changes[0] < 1e-5 and changes[1] < 1e-9 and changes[2] < 1e-13

    def test_draws_the_mean_towards_the_observation(self) -> None:
        draw = generator()
        p = torch.randn(3, 80, 5, generator=draw).double()
        phi = torch.rand(80, 1, 5, generator=draw).double()
        u = ensemble_forecast(p, phi)
        v, eta = torch.tensor([3.0, -2.0, 1.0]).double(), torch.full((3,), 0.1).double()
        before = (u.mean(0) - v).norm()
        analysis(p, u, v, eta, centred_noise(80, eta, draw))
        assert (u.mean(0) - v).norm() < 0.5 * before
        assert (ensemble_forecast(p, phi).mean(0) - v).norm() < 0.8 * before

    def test_rows_learn_from_their_own_component_alone(self) -> None:
        draw = generator()
        p = torch.randn(2, 60, 4, generator=draw).double()
        u = torch.randn(60, 2, generator=draw).double()
        eta = torch.tensor([0.1, 1e12]).double()
        before = p.clone()
        analysis(p, u, torch.zeros(2).double(), eta, torch.zeros(60, 2).double())
        assert not torch.allclose(p[0], before[0])
        torch.testing.assert_close(p[1], before[1], rtol=0, atol=1e-9)

    def test_shared_rows_solve_for_all_groups_at_once(self) -> None:
        # Two groups that observe the same combination: as one of half the noise.
        draw = generator()
        p = torch.randn(1, 400, 3, generator=draw).double()
        once = p.clone()
        phi = torch.rand(400, 1, 3, generator=draw).double()
        u = ensemble_forecast(p, phi)
        two = u.expand(-1, 2).clone()
        v, eta = torch.ones(2).double(), torch.full((2,), 0.4).double()
        still = torch.zeros(400, 2).double()
        analysis(p, two, v, eta, still)
        analysis(once, u.clone(), v[:1], eta[:1] / 2, still[:, :1])
        torch.testing.assert_close(p, once)

    def test_every_member_forecasts_with_its_own_map(self) -> None:
        draw = generator()
        p = torch.randn(2, 5, 4, generator=draw).double()
        phi = torch.randn(5, 3, 4, generator=draw).double()
        u = ensemble_forecast(p, phi).unflatten(1, (3, 2))
        assert u[4, 2, 1].item() == pytest.approx((p[1, 4] @ phi[4, 2]).item())

    def test_taper_fades_around_the_ring(self) -> None:
        taper = ring_taper(20, 6.0)
        assert torch.equal(taper.diagonal(), torch.ones(20).double())
        assert taper[0, 6] == taper[0, 10] == 0
        assert taper[0, 18] == pytest.approx(taper[0, 2].item())
        assert torch.linalg.eigvalsh(taper).min() > -1e-12


class TestLorenz63:
    def test_filter_improves_on_the_data(self) -> None:
        u = lorenz63(900, DT, seed=1)
        v, sigma = add_noise(u, 0.05, seed=2)
        model = RAFDA(width=150, members=100).fit(v, DT)
        rest = (model.states_ - u)[500:].square().mean().sqrt()
        assert rest < 0.7 * sigma.mean()
        assert model.cost_.evaluations >= 100 * 900

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("n", "least", "most"), [(4000, 2.1, 2.8), (10_000, 2.5, 3.6)]
    )
    def test_forecasts_at_5_percent_noise(self, n, least, most, monkeypatch) -> None:
        # Draws differ by half a Lyapunov time, and by a fifth of one where sums round
        # otherwise; means over fewer than six of them do not stay in the range.
        options = {"lyapunov_exponent": 0.91, "horizon": 10.0, "starts": 30}

        def forecasts() -> float:
            found = []
            for draw in range(6):
                u = lorenz63(n + 5000, DT, seed=100 + draw)
                v, sigma = add_noise(u[:n], 0.05, seed=200 + draw)
                model = RAFDA(sigma=sigma.mean().item(), seed=draw).fit(v, DT)
                found.append(model.evaluate(u[n:], DT, **options).vpt.mean)
            return sum(found) / len(found)

        learned = forecasts()
        # Without the filter, the map is that of the regression.
        monkeypatch.setattr(RAFDA, "_assimilate", lambda self, module, series: series.v)
        regressed = forecasts()
        assert least < learned < most
        assert learned > 3 * regressed > 0.3

    def test_same_seed_same_bits_and_a_file(self, tmp_path) -> None:
        u = lorenz63(200, DT, seed=1)
        first = RAFDA(width=20, members=15, seed=3).fit(u, DT)
        second = RAFDA(width=20, members=15, seed=3).fit(u, DT)
        t = DT * torch.arange(5)
        assert torch.equal(first.forecast(u[0], t), second.forecast(u[0], t))
        first.save(tmp_path / "model.pt")
        again = load(tmp_path / "model.pt")
        assert torch.equal(first.forecast(u[0], t), again.forecast(u[0], t))

    def test_missing_samples_are_bridged(self) -> None:
        u = lorenz63(300, DT, seed=1)
        v = u.clone()
        v[100:105] = float("nan")
        model = RAFDA(width=30, members=30, sigma=0.1).fit([v, u[:50]], DT)
        assert model.states_.isfinite().all()


class TestRing:
    def test_shared_map_runs_on_lorenz96(self) -> None:
        u = lorenz96(400, DT, seed=1, sites=12)
        v, sigma = add_noise(u, 0.05, seed=2)
        # An ensemble as small as this one collapses with the default inflation.
        small = {"width": 150, "members": 150, "spread": 1.0, "inflation": 1.3}
        model = RAFDA(group=2, reach=2, **small).fit(v, DT)  # type: ignore[arg-type]
        rest = (model.states_ - u)[150:].square().mean().sqrt()
        assert rest < sigma.mean()
        ahead = model.forecast(u[0], DT * torch.arange(3))
        turned = model.forecast(u[0].roll(2), DT * torch.arange(3))
        torch.testing.assert_close(turned, ahead.roll(2, -1), rtol=1e-9, atol=1e-9)


def test_an_ensemble_without_spread_keeps_the_map_of_the_regression(
    monkeypatch,
) -> None:
    dt = 0.05
    t = dt * torch.arange(100, dtype=torch.float64)
    u = torch.stack([t.cos(), -t.sin()], 1)

    def after_a_step(spread: float | None) -> torch.Tensor:
        model = RAFDA(width=20, members=10, sigma=0.01, spread=spread)
        return model.fit(u, dt).forecast(u[0], t[:2])[1]

    kept, learned = after_a_step(0.0), after_a_step(None)
    monkeypatch.setattr(RAFDA, "_assimilate", lambda self, module, series: series.v)
    torch.testing.assert_close(kept, after_a_step(None), rtol=0, atol=1e-6)
    assert not torch.allclose(kept, learned, rtol=0, atol=1e-4)
