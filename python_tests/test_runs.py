"""Runs and windows against a search sample by sample."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from wpnode_ext.runs import gap_free_runs, window_starts


def connected(n, lengths, missing, t, max_gap):
    """Whether sample n + 1 follows sample n, decided one pair at a time."""
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
    follows = connected(n, lengths, missing, t.tolist(), 2.0)
    expected = [s for s in range(n - window + 1) if all(follows[s : s + window - 1])]
    assert window_starts(runs, window).tolist() == expected
    thinned = window_starts(runs, window, stride).tolist()
    assert set(thinned) <= set(expected)
    for first, stop in runs:
        inside = [s for s in thinned if first <= s < stop]
        assert inside == list(range(first, stop - window + 1, stride))


def test_a_phase_moves_the_windows_of_every_run() -> None:
    assert window_starts([(0, 6), (10, 13)], 2, 3, phase=1).tolist() == [1, 4, 11]
    assert window_starts([], 2).tolist() == []


def test_a_gap_is_three_median_steps_by_default() -> None:
    t = torch.tensor([0.0, 1.0, 2.0, 4.9, 8.0, 9.0])
    assert gap_free_runs(6, t=t) == [(0, 4), (4, 6)]


def test_lengths_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="add up to the 5 samples"):
        gap_free_runs(5, lengths=[2, 2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((1, 1), "`window` must be"), ((2, 0), "`window_stride` must be")],
)
def test_windows_must_have_a_step(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        window_starts([(0, 5)], *arguments)
