"""Noise levels against their definitions."""

import pytest
import torch

from wpnode_ext.data import add_noise, noise_level, noise_ratio


def series() -> torch.Tensor:
    # RMS sqrt((9 + 16) / 2) over all; component RMS 3 and 4; component std 3 and 0.
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(5000)
    return torch.stack([3 * signs, torch.full_like(signs, 4.0)], -1)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("global_rms", [0.1 * 12.5**0.5] * 2),
        ("component_rms", [0.3, 0.4]),
        ("component_std", [0.3, 0.0]),
    ],
)
def test_levels_are_those_of_the_definition(mode: str, expected: list[float]) -> None:
    sigma = noise_level(series(), 0.1, mode=mode)
    assert sigma.tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("mode", ["global_rms", "component_rms", "component_std"])
def test_added_noise_has_the_level_it_reports(mode: str) -> None:
    u = series()
    v, sigma = add_noise(u, 0.1, mode=mode, seed=4)
    noise = v - u
    # The standard error of a standard deviation from n samples is sigma / sqrt(2 n).
    bound = 4 * sigma / (2 * len(u)) ** 0.5
    assert ((noise.std(0) - sigma).abs() <= bound).all()
    assert (noise.mean(0).abs() <= 4 * sigma / len(u) ** 0.5).all()


def test_noise_is_white_and_independent_between_components() -> None:
    u = torch.zeros(20_000, 2, dtype=torch.float64) + 1
    noise = add_noise(u, 1.0, seed=0)[0] - u
    neighbours = (noise[1:] * noise[:-1]).mean(0)
    assert neighbours.abs().max() < 4 / 20_000**0.5
    assert (noise[:, 0] * noise[:, 1]).mean().abs() < 4 / 20_000**0.5


def test_seeds_decide_the_noise_and_nothing_else_is_touched() -> None:
    u = series()
    state = torch.get_rng_state()
    first, _ = add_noise(u, 0.1, seed=1)
    again, _ = add_noise(u, 0.1, seed=torch.Generator().manual_seed(1))
    other, _ = add_noise(u, 0.1, seed=2)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_dtype_is_kept_and_numpy_accepted() -> None:
    assert add_noise(series().float(), 0.1)[0].dtype == torch.float32
    v, sigma = add_noise(series().numpy(), 0.0)
    assert torch.equal(v, series()) and sigma.tolist() == [0.0, 0.0]


def test_bad_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="`noise_ratio` must be >= 0; got -0.1"):
        add_noise(series(), -0.1)
    with pytest.raises(ValueError, match="`mode` must be 'global_rms'.*got 'rms'"):
        add_noise(series(), 0.1, mode="rms")


def test_the_ratio_of_observations_and_noise_is_that_of_the_level() -> None:
    u = series()
    # Noise that is exactly uncorrelated with the signal, of exactly known size.
    noise = torch.tensor([0.5, 0.5, -0.5, -0.5]).double().repeat(2500)[:, None]
    v = u + noise
    assert noise_ratio(v, torch.tensor([0.5, 0.5])) == pytest.approx(
        0.5 / 12.5**0.5, rel=1e-12
    )
    assert noise_level(u, noise_ratio(v, [0.5, 0.5])).tolist() == pytest.approx(
        [0.5] * 2
    )
    assert noise_ratio(v, [0.0, 0.0]) == 0.0
    assert noise_ratio(v, [9.0, 9.0]) == float("inf")
    v[:400] = float("nan")
    assert noise_ratio(v, [0.5, 0.5]) == pytest.approx(0.5 / 12.5**0.5, rel=1e-12)
