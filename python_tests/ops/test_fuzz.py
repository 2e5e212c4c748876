"""The operators on numbers from all of int64: the short form of ``make fuzz``."""

from fuzz.run import fuzz


def test_no_call_ends_the_process_or_gives_a_wrong_result():
    # Seeds `make fuzz` does not come to: every run of both adds to what was tried.
    tally = fuzz(2_000_000, 1500)
    assert not tally.complaints
    assert sum(tally.outcomes.values()) == 1500
