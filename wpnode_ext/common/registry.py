"""Registries: implementations that settings and commands choose by name.

A registry turns an extension into one file and one entry. Code outside the package adds
entries in the same way:

>>> SHAPES: Registry[type] = Registry("shape", "shapes")
>>> @SHAPES.register("circle")
... class Circle: ...
>>> SHAPES.find("circel")
Traceback (most recent call last):
ValueError: `shape` must be one of circle; got 'circel'. Did you mean 'circle'?
"""

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

Entry = TypeVar("Entry")
Given = TypeVar("Given")

# Least similarity, from 0 to 1, of a suggested name to the misspelt one.
_LEAST_SIMILARITY = 0.5


class Registry(Generic[Entry]):
    """Entries by name, in the order in which they were added.

    Args:
        setting: the setting or argument that holds such a name, e.g. "field.kind";
            error messages begin with it.
        plural: name of the entries in messages, e.g. "fields".
    """

    def __init__(self, setting: str, plural: str) -> None:
        self.setting, self.plural = setting, plural
        self._entries: dict[str, Entry] = {}

    def add(self, name: str, entry: Entry, *, replace: bool = False) -> None:
        """Adds an entry; with `replace` it may take the place of another.

        Raises:
            ValueError: the name cannot be printed in one line, or is taken.
        """
        if not name or not name.isprintable() or name != name.strip():
            raise ValueError(
                f"`name` must be printable text without spaces around it; got {name!r}."
            )
        if name in self._entries and not replace:
            raise ValueError(
                f"`name` must not be taken; {name!r} is among the {self.plural} "
                "already. Choose another name, or pass `replace=True`."
            )
        self._entries[name] = entry

    def register(self, name: str, *, replace: bool = False) -> Callable[[Given], Given]:
        """Decorator that adds the class or function below it."""

        def decorate(entry: Given) -> Given:
            self.add(name, entry, replace=replace)  # type: ignore[arg-type]
            return entry

        return decorate

    def remove(self, name: str) -> None:
        """Removes an entry, for tests that add one."""
        self.find(name)
        del self._entries[name]

    def find(self, name: str, *, setting: str | None = None) -> Entry:
        """The entry of a name.

        Args:
            name: as it was added.
            setting: name of the setting in the message, in place of `self.setting`.

        Raises:
            ValueError: the name is unknown. The message lists all names, and the
                nearest one.
        """
        if name in self:
            return self._entries[name]
        raise ValueError(
            f"`{setting or self.setting}` must be one of {', '.join(self.names)}; "
            f"got {name!r}.{suggestion(name, self.names)}"
        )

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order in which they were added."""
        return tuple(self._entries)

    def items(self) -> Iterable[tuple[str, Entry]]:
        """Names with their entries."""
        return self._entries.items()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self._entries)


def suggestion(name: object, known: Iterable[str], *, quote: str = "'") -> str:
    """`` Did you mean 'x'?`` with the known name nearest to `name`, or "".

    Args:
        name: the given name; only texts get a suggestion.
        known: the names to suggest from.
        quote: character around the suggested name.
    """
    if not isinstance(name, str):
        return ""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=_LEAST_SIMILARITY)
    return f" Did you mean {quote}{near[0]}{quote}?" if near else ""
