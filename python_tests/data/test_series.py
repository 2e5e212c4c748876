"""Series from arrays: which are accepted, completed or refused."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import wpnode_ext as wp
from wpnode_ext.data import Series, lay_end_to_end, make_series

NAN = float("nan")


def test_one_array_is_one_series() -> None:
    v = np.arange(12.0).reshape(6, 2)
    series = make_series(v, dt=0.5, names=("a", "b"))
    assert (series.n_samples, series.n_series, series.state_shape) == (6, 1, (2,))
    assert series.v.dtype == torch.float64 and torch.equal(series.v, torch.tensor(v))
    assert series.times.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert series.mask is None and series.names == ("a", "b")


def test_a_vector_of_numbers_is_a_state_of_one_entry() -> None:
    assert make_series([1, 2, 3, 4], dt=1).v.shape == (4, 1)


def test_lists_of_arrays_are_laid_end_to_end() -> None:
    parts = [np.random.default_rng(i).normal(size=(n, 2)) for i, n in enumerate((5, 7))]
    series = make_series(parts, dt=0.1)
    assert series.lengths == (5, 7)
    assert torch.equal(series.v, torch.from_numpy(np.concatenate(parts)))
    for part, expected in zip(series.parts(), parts, strict=True):
        assert torch.equal(part.v, torch.from_numpy(expected))


def test_uniform_times_become_a_step() -> None:
    t = 100.0 + 0.1 * np.arange(20)
    series = make_series(np.sin(t), t=t)
    assert series.t is None and series.dt == pytest.approx(0.1, rel=1e-12)
    assert series.times.tolist() == pytest.approx(t.tolist(), rel=1e-14)


def test_absent_times_of_a_uniform_grid_become_missing_samples() -> None:
    t = np.delete(0.1 * np.arange(30), [4, 5, 20])
    series = make_series(2 * t, t=t)
    assert series.n_samples == 30
    assert series.missing.nonzero().flatten().tolist() == [4, 5, 20]
    # Filled on the line between neighbours, which is exact for a line.
    assert (series.v[:, 0] - 0.2 * torch.arange(30).double()).abs().max() < 1e-12


def test_irregular_times_stay_as_they_are() -> None:
    t = np.cumsum(np.random.default_rng(0).uniform(0.5, 1.5, 40))
    series = make_series(np.sin(t), t=t)
    assert series.dt is None
    assert series.t is not None and torch.equal(series.t, torch.from_numpy(t))


def test_a_series_is_cut_at_a_gap_too_long_to_fill() -> None:
    t = np.concatenate(
        [np.arange(10.0), 1e6 + np.arange(10.0), 1e6 + 12 + np.arange(5)]
    )
    series = make_series(t, t=t, forcing=2 * t)
    assert (series.dt, series.lengths) == (1.0, (10, 17))
    assert series.times.tolist() == [*range(10), *range(10**6, 10**6 + 17)]
    assert series.missing.nonzero().flatten().tolist() == [20, 21]
    assert series.forcing is not None
    assert torch.equal(series.forcing[:, 0], 2 * series.times)


@given(
    dt=st.sampled_from([1 / 30, 0.01, 0.004, 1.0, 6.0, 2 / 3, 1e-4, 0.0333]),
    decimals=st.sampled_from([3, 4, 6, None]),
    start=st.sampled_from([0.0, -12.5, 1234.567, 1.7e9]),
    seed=st.integers(0, 2**31),
)
def test_times_on_a_grid_are_found_however_they_were_rounded(
    dt, decimals, start, seed
) -> None:
    rng = np.random.default_rng(seed)
    kept = np.flatnonzero(rng.random(300) < rng.choice([0.6, 0.8, 1.0]))
    kept = np.union1d(kept, [0, 299])
    t = start + dt * kept
    if decimals is not None:
        assume(0.5 * 10.0**-decimals <= 0.1 * dt)
        t = np.round(t, decimals)
    series = make_series(kept, t=t)
    assert series.dt == pytest.approx(dt, rel=1e-3)
    assert (~series.missing).nonzero().flatten().tolist() == kept.tolist()


@given(
    jitter=st.floats(0.02, 0.4),
    decimals=st.sampled_from([3, 6, None]),
    seed=st.integers(0, 2**31),
)
def test_times_beside_a_grid_are_irregular(jitter, decimals, seed) -> None:
    rng = np.random.default_rng(seed)
    t = np.arange(300) + jitter * rng.uniform(-1, 1, 300)
    t = t if decimals is None else np.round(t, decimals)
    series = make_series(t, t=t)
    assert series.dt is None and series.t is not None
    assert torch.equal(series.t, torch.from_numpy(t))


def test_times_in_single_precision_may_be_a_grid() -> None:
    t = (0.01 * np.arange(5000)).astype(np.float32)
    assert make_series(t, t=t).dt == pytest.approx(0.01, rel=1e-6)


def test_a_given_step_must_match_the_times() -> None:
    t = np.delete(0.1 * np.arange(30), [4, 5, 20])
    series = make_series(2 * t, dt=0.1, t=t)
    assert series.missing.nonzero().flatten().tolist() == [4, 5, 20]
    with pytest.raises(ValueError, match="`dt` .* got 0.2, but .* a step of 0.1"):
        make_series(2 * t, dt=0.2, t=t)


def test_a_series_describes_its_samples() -> None:
    t = np.delete(0.1 * np.arange(30), [4, 5, 20])
    text = make_series(2 * t, t=t).describe()
    assert text == "30 samples, 0.1 apart, 3 of them missing"
    text = make_series([np.ones(5), np.ones(7)], dt=1).describe()
    assert text == "12 samples in 2 series, 1 apart"
    uneven = np.array([0.0, 1.0, 2.4, 3.0, 4.0])
    text = make_series(uneven, t=uneven).describe()
    assert text == "5 samples at irregular times, 0.6 to 1.4 apart (median 1)"


def test_missing_values_are_marked_and_filled() -> None:
    v = torch.tensor([[0.0, 5.0], [NAN, 6.0], [2.0, 7.0], [3.0, NAN]])
    series = make_series(v, dt=1.0)
    assert series.v.tolist() == [[0, 5], [1, 6], [2, 7], [3, 7]]
    assert series.mask is not None
    assert series.mask.nonzero().tolist() == [[1, 0], [3, 1]]
    assert series.missing.tolist() == [False, True, False, True]
    again = make_series(torch.nan_to_num(v), dt=1.0, mask=v.isnan())
    assert torch.equal(again.v, series.v)
    whole = make_series(torch.nan_to_num(v), dt=1.0, mask=[0, 1, 0, 0])
    assert whole.missing.tolist() == [False, True, False, False]


def test_samples_without_forcing_are_missing() -> None:
    forcing = np.array([0.0, NAN, 2.0, 3.0])
    series = make_series(np.arange(4.0), dt=1.0, forcing=forcing)
    assert series.missing.tolist() == [False, True, False, False]
    assert series.forcing is not None
    assert series.forcing.flatten().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_inputs_of_absent_samples_lie_between_their_neighbours() -> None:
    t = np.array([0.0, 1.0, 2.0, 4.0, 5.0])
    series = make_series(np.arange(5.0), t=t, forcing=10 + t)
    assert series.dt == 1.0 and series.forcing is not None
    assert series.forcing.flatten().tolist() == [10, 11, 12, 13, 14, 15]
    uneven = np.array([0.0, 1.0, 1.5, 4.0])
    inputs = np.stack([uneven, [1.0, NAN, np.inf, 5.0]], 1)
    series = make_series(np.arange(4.0), t=uneven, forcing=inputs)
    assert series.missing.tolist() == [False, True, True, False]
    assert series.forcing.T.tolist() == [uneven.tolist(), [1.0, 2.0, 2.5, 5.0]]


def test_a_series_gives_the_arguments_of_a_plan() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(40, 2)), rng.normal(size=(30, 2))]
    parts[0][25] = NAN
    series = make_series(parts, dt=0.1)
    plan = wp.WeakPlan(**series.plan_arguments(), p=2, ell=10, q=1)
    # 30 starts in the first series, 11 of them touch sample 25; 20 in the second.
    assert plan.n_segments == (40 - 10) - 11 + (30 - 10)
    irregular = make_series(parts[1], t=np.cumsum(rng.uniform(0.5, 1.5, 30)))
    assert wp.WeakPlan(**irregular.plan_arguments(), ell=10, q=1).n_segments == 20


def test_split_in_time_holds_out_the_end_of_every_series() -> None:
    series = make_series([np.arange(10.0), 100 + np.arange(20.0)], dt=0.5)
    train, held_out = series.split(0.25)
    assert train.lengths == (7, 15) and held_out.lengths == (3, 5)
    assert held_out.v[:, 0].tolist() == [7, 8, 9, 115, 116, 117, 118, 119]
    assert held_out.t0 == (3.5, 7.5)


def test_split_by_series_holds_out_whole_ones() -> None:
    series = make_series([np.full(5, float(i)) for i in range(4)], dt=1.0)
    train, held_out = series.split(0.3, by="series")
    assert train.v.unique().tolist() == [0.0, 1.0]
    assert held_out.v.unique().tolist() == [2.0, 3.0]


def test_split_keeps_times_masks_and_forcing_with_their_samples() -> None:
    t = np.cumsum(np.random.default_rng(1).uniform(0.5, 1.5, 20))
    v = np.arange(20.0)
    v[18] = NAN
    series = make_series(v, t=t, forcing=10 * np.arange(20.0))
    _, held_out = series.split(0.2)
    assert held_out.t is not None and held_out.t.tolist() == t[16:].tolist()
    assert held_out.missing.tolist() == [False, False, True, False]
    assert held_out.forcing is not None
    assert held_out.forcing[:, 0].tolist() == [160, 170, 180, 190]


def test_moving_changes_precision_of_data_only() -> None:
    t = np.cumsum(np.random.default_rng(1).uniform(0.5, 1.5, 20))
    series = make_series(np.ones((20, 2)), t=t, forcing=t).to(torch.float32)
    assert series.v.dtype == torch.float32
    assert series.t is not None and series.t.dtype == torch.float64
    assert series.forcing is not None and series.forcing.dtype == torch.float32


def test_require_sees_borders_gaps_and_missing_samples() -> None:
    parts = [np.ones(10), np.ones(12)]
    parts[1][3] = NAN
    series = make_series(parts, dt=1.0)
    assert series.require(10, "a test") is series
    with pytest.raises(ValueError, match="`v` must have 11 samples .* has 10"):
        series.require(11, "a test")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"v": np.ones((2, 3)), "dt": 1.0}, "`v` must have at least 3 samples; got 2"),
        ({"v": np.ones(9)}, "one of `dt` and `t` must be given"),
        ({"v": np.ones(9), "dt": -1.0}, "`dt` must be positive; got -1.0"),
        ({"v": np.full(9, np.inf), "dt": 1.0}, "must not hold infinity"),
        ({"v": [np.ones((5, 2)), np.ones((5, 3))], "dt": 1.0}, "one state shape"),
        ({"v": np.ones(5), "t": np.array([0, 1, 1, 2, 3])}, "got 1 at index 2 after 1"),
        ({"v": np.ones(5), "t": np.arange(4)}, "`t` must have one entry for each of"),
        ({"v": np.ones(5), "t": [0, 1, NAN, 3, 4]}, "must be finite"),
        (
            {"v": np.array([[1.0, NAN]] * 5), "dt": 1.0},
            "`v` must have a sample of every entry .* 1 of 2",
        ),
        ({"v": np.ones((5, 2)), "dt": 1.0, "names": ("a",)}, "`names` must name"),
        ({"v": np.ones(5), "dt": 1.0, "mask": np.ones((5, 3))}, "`mask` must have"),
        ({"v": np.ones(5), "dt": 1.0, "forcing": np.ones(4)}, "`forcing` must have"),
        ({"v": [np.ones(5)] * 2, "dt": 1.0, "mask": [np.ones(5)]}, "list of 2 arrays"),
    ],
)
def test_unusable_data_are_refused_with_the_reason(arguments, words) -> None:
    with pytest.raises(ValueError, match=words):
        make_series(**arguments)


def test_text_is_refused() -> None:
    with pytest.raises(TypeError, match="`v` must hold real numbers"):
        make_series(np.array(["a", "b", "c"]), dt=1.0)


def test_series_check_themselves() -> None:
    v = torch.ones(6, 2)
    with pytest.raises(ValueError, match="one of `dt` and `t`"):
        Series(v=v, lengths=(6,))
    with pytest.raises(ValueError, match="`lengths` must be positive and add up to"):
        Series(v=v, lengths=(3, 2), dt=1.0)
    with pytest.raises(ValueError, match="`mask` must have the shape"):
        Series(v=v, lengths=(6,), dt=1.0, mask=torch.zeros(6, dtype=torch.bool))
    with pytest.raises(
        ValueError, match="`fraction` must .* the training part would be empty"
    ):
        make_series(np.ones(8), dt=1.0).split(0.5, min_length=5)


def test_the_elements_of_a_batch_become_series_end_to_end() -> None:
    v = torch.randn(2, 6, 3)
    mask = torch.zeros(2, 6, dtype=torch.bool)
    mask[1, 2] = True
    v[1, 2] = NAN
    series = lay_end_to_end(v, dt=0.5, dim=1, lengths=[4, 2], mask=mask)
    assert series.lengths == (4, 2, 4, 2)
    assert series.runs == [(0, 4), (4, 6), (6, 8), (9, 10), (10, 12)]
    assert series.longest_run == 4
    # Time goes on along an element, and begins anew with the next.
    assert series.times.tolist() == 2 * [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert series.clock.shape == (12, 1)
    assert (series.v[8] == 0).all() and torch.equal(series.v[:6], v[0])


def test_a_longer_step_than_max_gap_ends_a_run() -> None:
    t = torch.tensor([0.0, 1.0, 2.0, 4.0, 5.0])
    v = torch.zeros(5, 1)
    assert lay_end_to_end(v, t=t).runs == [(0, 5)]
    assert lay_end_to_end(v, t=t, max_gap=1.5).runs == [(0, 3), (3, 5)]


def test_series_take_other_times_with_the_same_steps() -> None:
    uniform = make_series([np.ones(4), np.ones(3)], dt=0.5)
    times = torch.cat([uniform.times[:4] + 7, uniform.times[4:] + 20])
    assert torch.equal(uniform.at_times(times).times, times)
    t = np.array([0.0, 1.0, 2.3, 3.17])
    moved = make_series(np.ones(4), t=t).at_times(torch.from_numpy(t) + 3)
    assert moved.times.tolist() == (t + 3).tolist() and moved.dt is None
