"""Bars while loops of a fit run."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def progress(
    items: Iterable[Item], total: int, shown: bool, label: str | None = None
) -> Iterator[Item]:
    """The items, with a bar while they are gone through.

    Args:
        items: to go through.
        total: their number.
        shown: False shows nothing.
        label: what the items are, before the bar.
    """
    if not shown:
        return iter(items)
    try:
        from tqdm import tqdm
    except ImportError:
        return iter(items)
    return iter(tqdm(items, total=total, desc=label))
