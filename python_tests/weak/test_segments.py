import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wpnode_ext.ops.checks import check_starts, count_segments, is_uniform, within
from wpnode_ext.weak.segments import (
    gap_free_runs,
    missing_values,
    segment_starts,
    window_starts,
)


def follows(n, lengths, missing, t, max_gap):
    """True if sample n + 1 follows sample n in a run, decided one pair at a time."""
    ends, total = set(), 0
    for length in lengths:
        total += length
        ends.add(total - 1)
    return [
        i not in ends
        and not missing[i]
        and not missing[i + 1]
        and t[i + 1] - t[i] <= max_gap
        for i in range(n - 1)
    ]


@settings(max_examples=100, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    ell=st.integers(1, 6).map(lambda half: 2 * half),
    q=st.integers(1, 20),
    seed=st.integers(0, 2**31),
)
def test_segments_begin_with_their_run_and_every_q_samples_after(lengths, ell, q, seed):
    n = sum(lengths)
    generator = torch.Generator().manual_seed(seed)
    missing = torch.rand(n, generator=generator) < 0.05
    steps = torch.where(torch.rand(n, generator=generator) < 0.05, 5.0, 1.0)
    t = torch.cumsum(steps, 0).double()
    starts = segment_starts(
        n, ell, q, lengths=lengths, missing=missing, t=t, max_gap=2.5
    )
    joined = follows(n, lengths, missing.tolist(), t.tolist(), 2.5)
    expected, begun = [], 0
    for sample in range(n):
        if sample > 0 and not joined[sample - 1]:
            begun = sample
        whole = sample + ell < n and all(joined[sample : sample + ell])
        if whole and (sample - begun) % q == 0:
            expected.append(sample)
    assert starts.tolist() == expected


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    data=st.data(),
    window=st.integers(2, 5),
    stride=st.integers(1, 3),
)
def test_windows_are_those_whose_samples_all_follow_one_another(
    lengths, data, window, stride
) -> None:
    n = sum(lengths)
    missing = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    steps = data.draw(st.lists(st.sampled_from([1.0, 5.0]), min_size=n, max_size=n))
    t = torch.tensor(steps, dtype=torch.float64).cumsum(0)
    runs = gap_free_runs(
        n, lengths=lengths, missing=torch.tensor(missing), t=t, max_gap=2.0
    )
    joined = follows(n, lengths, missing, t.tolist(), 2.0)
    expected = [s for s in range(n - window + 1) if all(joined[s : s + window - 1])]
    assert window_starts(runs, window).tolist() == expected
    thinned = window_starts(runs, window, stride).tolist()
    assert set(thinned) <= set(expected)
    for first, stop in runs:
        inside = [s for s in thinned if first <= s < stop]
        assert inside == list(range(first, stop - window + 1, stride))


def test_a_phase_moves_the_windows_of_every_run() -> None:
    assert window_starts([(0, 6), (10, 13)], 2, 3, phase=1).tolist() == [1, 4, 11]
    assert window_starts([(0, 6), (10, 13)], 2, phase=9).tolist() == []
    assert window_starts([], 2).tolist() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((1, 1), "`window` must be"), ((2, 0), "`window_stride` must be")],
)
def test_windows_must_have_a_step(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        window_starts([(0, 5)], *arguments)


@given(n=st.integers(1, 500), ell=st.integers(1, 60), q=st.integers(1, 600))
def test_count_is_the_number_of_starts(n, ell, q):
    ell *= 2
    starts = segment_starts(n, ell, q)
    assert len(starts) == count_segments(n, ell, q)
    assert is_uniform(starts, n, ell, q)
    assert not is_uniform(starts + 1, n, ell, q) or len(starts) == 0


@pytest.mark.parametrize(
    ("n", "ell", "q"),
    [(12, 77 - 2**63, 2**63 - 1), (-5, 100 - 2**63, 2**63 - 100), (9, 4, 2**63 - 1)],
)
def test_one_start_is_uniform_for_steps_near_the_end_of_int64(n, ell, q) -> None:
    assert is_uniform(torch.tensor([0]), n, ell, q)
    assert not is_uniform(torch.tensor([1]), n, ell, q)
    assert not is_uniform(torch.tensor([0, q]), n, ell, q)


def test_a_gap_is_three_median_steps_by_default():
    t = torch.cat([torch.arange(20.0), 21.5 + torch.arange(20.0)])
    assert len(segment_starts(40, 4, 1, t=t)) == 36
    assert len(segment_starts(40, 4, 1, t=t, max_gap=2.0)) == 32
    later = torch.cat([torch.arange(20.0), 23.5 + torch.arange(20.0)])
    assert len(segment_starts(40, 4, 1, t=later)) == 32
    uneven = torch.tensor([0.0, 1.0, 2.0, 4.9, 8.0, 9.0])
    assert gap_free_runs(6, t=uneven) == [(0, 4), (4, 6)]


def test_steps_between_series_are_left_out() -> None:
    # The second series begins earlier than the first ends; its steps are twice as long.
    t = torch.tensor([0.0, 1.0, 2.0, 3.0, 1.0, 3.0, 5.0, 12.0])
    assert gap_free_runs(8, lengths=[4, 4], t=t) == [(0, 4), (4, 7), (7, 8)]


@pytest.mark.parametrize("n", [39, 41])
def test_times_must_be_as_many_as_samples(n) -> None:
    with pytest.raises(
        ValueError, match=f"`t` .* the 40 samples of `v`; got {n} times"
    ):
        gap_free_runs(40, t=torch.arange(n).double())


@pytest.mark.parametrize(
    ("ell", "q", "words"),
    [
        (51, 2, "`ell` must be an even integer >= 2; got 51."),
        (0, 2, "`ell` must be an even integer >= 2; got 0."),
        (50, 0, "`q` must be an integer >= 1; got 0."),
    ],
)
def test_invalid_layouts_are_refused(ell, q, words):
    with pytest.raises(ValueError, match=words):
        segment_starts(100, ell, q)


def test_lengths_must_add_up():
    with pytest.raises(ValueError, match="add up to the 100 samples of `v`; got"):
        segment_starts(100, 10, 2, lengths=[40, 50])
    with pytest.raises(ValueError, match="add up to the 5 samples"):
        gap_free_runs(5, lengths=[2, 2])


@pytest.mark.parametrize(
    ("starts", "error", "words"),
    [
        (torch.tensor([0, 3, 2]), ValueError, "`starts` must be non-decreasing"),
        (torch.tensor([-1, 3]), ValueError, r"must lie in 0 .. 89, .* got -1 .. 3"),
        (torch.tensor([0, 90]), ValueError, r"must lie in 0 .. 89, .* got 0 .. 90"),
        (torch.tensor([2**63 - 1, -(2**63)]), ValueError, "must be non-decreasing"),
        (torch.tensor([-(2**63), 2**63 - 1]), ValueError, "must lie in 0 .. 89"),
        (torch.tensor([0.0]), TypeError, "`starts` must be an int64 vector"),
        (torch.zeros(0, dtype=torch.int64), ValueError, "at least one segment"),
    ],
)
def test_starts_outside_the_record_are_refused(starts, error, words):
    with pytest.raises(error, match=words):
        check_starts(starts, 100, 10)


@pytest.mark.parametrize("stop", [0, 1, 7, 2**62, 2**63 - 1])
@pytest.mark.parametrize("q", [1, 6, 7, 8, 2**62, 2**63 - 1])
def test_a_step_past_the_end_is_cut_to_one_that_does_not_wrap_round(stop, q):
    step = within(q, stop)
    assert range(0, stop, step) == range(0, stop, q)
    assert step <= max(1, stop)


def test_masks_of_samples_and_of_values_have_one_meaning() -> None:
    v = torch.zeros(4, 2, 3)
    samples = torch.tensor([False, True, False, False])
    assert missing_values(samples, v).flatten(1).all(1).tolist() == samples.tolist()
    values = torch.rand(v.shape) < 0.5
    assert torch.equal(missing_values(values.numpy(), v), values)
    with pytest.raises(ValueError, match="`mask` must have shape .* got .4, 6."):
        missing_values(values.flatten(1), v)
