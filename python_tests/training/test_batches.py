"""Blocks, segments and windows of an epoch against the runs they must respect."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training_cases import DT, oscillator_data, small_config
from wpnode_ext.data import Series, lay_end_to_end
from wpnode_ext.settings.config import resolve
from wpnode_ext.training.batches import Batches


def make(
    record: Series, method: str = "wp", batch_size: int = 64, **options
) -> Batches:
    config = resolve(small_config(method, optim={"batch_size": batch_size}))
    return Batches(record, config, **options)


def record_of(lengths: list[int], missing: list[int] = ()) -> Series:
    n = sum(lengths)
    mask = torch.zeros(n, dtype=torch.bool)
    mask[list(missing)] = True
    return lay_end_to_end(oscillator_data(n), dt=DT, lengths=lengths, mask=mask)


def inside_one_run(record: Series, first: int, length: int) -> bool:
    return any(a <= first and first + length <= b for a, b in record.runs)


@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 300), min_size=1, max_size=4),
    epoch=st.integers(0, 1000),
    data=st.data(),
)
def test_segments_and_windows_stay_in_runs_and_cover_them(lengths, epoch, data) -> None:
    n = sum(lengths)
    missing = data.draw(st.lists(st.integers(0, n - 1), max_size=3))
    record = record_of(lengths, missing)
    usable = [run for run in record.runs if run[1] - run[0] > 20]
    if not usable:
        with pytest.raises(ValueError, match="no stretch of the data has the ell"):
            make(record)
        return
    covered = torch.zeros(n, dtype=torch.bool)
    for batch in make(record).epoch(epoch):
        rows, starts = batch.samples, batch.starts
        for b in range(len(rows)):
            local = range(0, 10**9, 2) if starts is None else starts.tolist()
            for k, s in zip(local, batch.segments[b].tolist(), strict=False):
                assert rows[b, k] == s
                assert torch.equal(rows[b, k : k + 21], s + torch.arange(21))
                assert inside_one_run(record, s, 21)
                covered[s : s + 21] = True
            windows = torch.arange(rows.shape[1])[batch.windows]
            for w in windows.tolist():
                assert torch.equal(rows[b, w : w + 3], rows[b, w] + torch.arange(3)), (
                    "a strong window leaves its block"
                )
        assert batch.n_segments == batch.segments.numel()
        assert batch.n_windows == len(rows) * len(windows)
    for first, stop in usable:
        # With segments q = 2 apart at most the last sample of a run is left out.
        assert covered[first + 1 : stop - 1].all()


def test_an_epoch_is_the_same_each_time_and_differs_from_the_next() -> None:
    batches = make(record_of([400]))
    again = make(record_of([400]))
    first, second = batches.epoch(3), again.epoch(3)
    assert all(
        torch.equal(a.samples, b.samples) for a, b in zip(first, second, strict=True)
    )
    other = batches.epoch(4)
    assert not all(
        torch.equal(a.samples, b.samples) for a, b in zip(first, other, strict=True)
    )


def test_one_long_series_gives_rectangular_batches_of_the_size_asked_for() -> None:
    batches = make(record_of([4000]), batch_size=512).epoch(0)
    assert all(batch.starts is None for batch in batches)
    assert all(batch.n_segments <= 1.1 * 512 for batch in batches)
    total = sum(batch.n_segments for batch in batches)
    assert 1990 <= total <= 1.2 * 1990


def test_an_epoch_has_as_many_windows_as_segments_and_all_samples_start_some() -> None:
    record = record_of([600])
    batches, started = make(record), set()
    for epoch in range(60):
        for batch in batches.epoch(epoch):
            assert batch.n_windows == batch.n_segments
            started |= set(batch.samples[:, batch.windows].flatten().tolist())
    assert started >= set(range(597))  # the last may miss the stride of 2


def test_samples_are_shared_by_the_segments_of_a_block() -> None:
    batches = make(record_of([4000]), batch_size=512).epoch(0)
    evaluated = sum(batch.samples.numel() for batch in batches)
    assert evaluated < 1.25 * 4000


@pytest.mark.parametrize("method", ["wp", "weak", "strong"])
@pytest.mark.parametrize("lengths", [[1000], [300, 90, 25]])
def test_shares_of_all_processes_are_the_batch_of_one(method, lengths) -> None:
    record = record_of(lengths)
    alone = make(record, method).epoch(2)
    shares = [make(record, method, rank=r, world=3).epoch(2) for r in range(3)]
    for number, whole in enumerate(alone):
        parts = [share[number] for share in shares]
        assert {p.n_segments for p in parts} == {whole.n_segments}
        assert {p.n_windows for p in parts} == {whole.n_windows}
        if whole.segments is not None:
            together = torch.cat([p.segments.flatten() for p in parts])
            assert torch.equal(together.sort()[0], whole.segments.flatten().sort()[0])
        else:
            together = torch.cat([p.samples for p in parts])
            assert torch.equal(together.unique(dim=0), whole.samples.unique(dim=0))


def test_strong_batches_hold_every_window_once() -> None:
    record = record_of([50, 30])
    batches = make(record, "strong", batch_size=16).epoch(0)
    starts = torch.cat([batch.samples[:, 0] for batch in batches]).sort()[0]
    assert starts.tolist() == [*range(48), *range(50, 78)]
    assert all(batch.samples.shape[1] == 3 for batch in batches)


def test_data_too_short_for_a_window_are_refused() -> None:
    with pytest.raises(ValueError, match="3 samples of a strong window"):
        make(record_of([2]), "strong")


@pytest.mark.parametrize("method", ["wp", "weak", "strong"])
@pytest.mark.parametrize("lengths", [[45], [70, 70], [400], [150, 60, 30]])
@pytest.mark.parametrize("world", [2, 3])
def test_every_process_has_its_share_of_every_batch(method, lengths, world) -> None:
    record = record_of(lengths)
    alone = make(record, method).epoch(3)
    shares = [
        make(record, method, rank=rank, world=world).epoch(3) for rank in range(world)
    ]
    for whole, *parts in zip(alone, *shares, strict=True):
        for firsts in (first_segments, first_windows):
            own = [firsts(part) for part in parts]
            assert sorted(sum(own, [])) == sorted(firsts(whole))
            if firsts(whole):
                assert min(map(len, own)) > 0
                # Whole blocks may differ by one where there are many.
                assert max(map(len, own)) <= 1.5 * min(map(len, own)) + 2
        assert {part.n_segments for part in parts} == {whole.n_segments}


def first_segments(batch) -> list[int]:
    """First samples of segments, in the record."""
    return [] if batch.segments is None else batch.segments.flatten().tolist()


def first_windows(batch) -> list[int]:
    if batch.windows is None:
        return []
    places = torch.arange(batch.samples.shape[1])[batch.windows]
    return batch.samples[:, places].flatten().tolist()


def test_processes_that_would_idle_are_refused() -> None:
    with pytest.raises(ValueError, match="`optim.batch_size` must be at least 3"):
        make(record_of([400]), batch_size=2, world=3)
    with pytest.raises(ValueError, match="have 1 segments, fewer than the 2 proc"):
        make(record_of([21]), world=2)
    with pytest.raises(ValueError, match="have 1 windows, fewer than the 2 proc"):
        make(record_of([3]), "strong", world=2)
