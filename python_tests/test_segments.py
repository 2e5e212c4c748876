import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wpnode_ext.segments import (
    check_starts,
    count_segments,
    is_uniform,
    segment_starts,
    within,
)


def is_admissible(start, ell, borders, missing, gaps):
    """The definition, sample by sample."""
    samples = range(start, start + ell + 1)
    one_series = not any(start < border <= start + ell for border in borders)
    observed = not any(missing[n] for n in samples)
    no_gap = not any(gaps[n] for n in samples[:-1])
    return one_series and observed and no_gap


@settings(max_examples=100, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    ell=st.integers(1, 6).map(lambda half: 2 * half),
    q=st.integers(1, 20),
    seed=st.integers(0, 2**31),
)
def test_exactly_the_admissible_segments_are_found(lengths, ell, q, seed):
    n = sum(lengths)
    generator = torch.Generator().manual_seed(seed)
    missing = torch.rand(n, generator=generator) < 0.05
    steps = torch.where(torch.rand(n, generator=generator) < 0.05, 5.0, 1.0)
    t = torch.cumsum(steps, 0).double()
    gaps = [*(t.diff() > 2.5).tolist(), False]
    borders = torch.tensor([0, *lengths]).cumsum(0).tolist()
    starts = segment_starts(
        n, ell, q, lengths=lengths, missing=missing, t=t, max_gap=2.5
    )
    expected = [
        start
        for first, length in zip(borders, lengths, strict=False)
        for start in range(first, first + length - ell, q)
        if is_admissible(start, ell, borders[1:-1], missing.tolist(), gaps)
    ]
    assert starts.tolist() == expected


@given(n=st.integers(1, 500), ell=st.integers(1, 60), q=st.integers(1, 600))
def test_count_is_the_number_of_starts(n, ell, q):
    ell *= 2
    starts = segment_starts(n, ell, q)
    assert len(starts) == count_segments(n, ell, q)
    assert is_uniform(starts, n, ell, q)


def test_a_gap_is_three_median_steps_unless_said_otherwise():
    t = torch.cat([torch.arange(20.0), 21.5 + torch.arange(20.0)])
    assert len(segment_starts(40, 4, 1, t=t)) == 36
    assert len(segment_starts(40, 4, 1, t=t, max_gap=2.0)) == 32
    later = torch.cat([torch.arange(20.0), 23.5 + torch.arange(20.0)])
    assert len(segment_starts(40, 4, 1, t=later)) == 32


@pytest.mark.parametrize(
    ("ell", "q", "words"),
    [
        (51, 2, "`ell` must be an even integer >= 2; got 51."),
        (0, 2, "`ell` must be an even integer >= 2; got 0."),
        (50, 0, "`q` must be an integer >= 1; got 0."),
    ],
)
def test_layouts_that_make_no_sense_are_refused(ell, q, words):
    with pytest.raises(ValueError, match=words):
        segment_starts(100, ell, q)


def test_lengths_must_add_up():
    with pytest.raises(ValueError, match="add up to the 100 samples of `v`; got"):
        segment_starts(100, 10, 2, lengths=[40, 50])


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
