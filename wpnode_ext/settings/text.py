"""Settings as text: plain YAML, of which no line runs, repeats or fetches anything."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Settings have a few hundred lines and two levels; more is another kind of file.
LARGEST, DEEPEST = 1_000_000, 20


def read_settings(path: str | Path) -> dict[str, Any]:
    """The entries of a YAML file, as nested dictionaries of plain values.

    Raises:
        ValueError: the file is no YAML, or uses what settings do without: tags, which
            may make objects, aliases, which may make a small file endless, and
            interpolations, which read the environment. The message names the file.
    """
    import yaml
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    path = Path(path)
    with path.open("rb") as file:
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise ValueError(f"{path} must have at most {LARGEST} bytes of settings.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be a text file in UTF-8; {error}.") from None
    check_plain(text, str(path))
    # An empty file has no root.
    if not isinstance(yaml.compose(text, yaml.SafeLoader), yaml.MappingNode | None):
        raise ValueError(f"{path}: expected `key: value` lines at the top level.")
    try:
        # A key that is there twice is refused by it, and 1e-3 is a number.
        values = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except (yaml.YAMLError, OmegaConfBaseException, ValueError) as error:
        raise ValueError(f"{path}: {in_one_line(error)}.") from None
    assert isinstance(values, dict)
    refuse_interpolation(values, f"{path}: ")
    return {str(name): value for name, value in values.items()}


def check_plain(text: str, source: str) -> None:
    """Raises ValueError, which begins with `source`, for YAML that is not plain."""
    import yaml

    try:
        for fault in _faults(text):
            raise ValueError(f"{source}: {fault}")
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{source}: {in_one_line(error)}.") from None


def in_one_line(error: Exception) -> str:
    """What a reader of YAML complains of, with the line it met it in."""
    mark, problem = (
        getattr(error, "problem_mark", None),
        getattr(error, "problem", None),
    )
    if problem is None:
        return " ".join(str(error).split())
    place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    return f"{place}{' '.join(str(problem).split())}"


def refuse_interpolation(values: Any, prefix: str, key: str = "") -> None:
    """Raises for a text with ``${...}``, which names the key it belongs to."""
    if isinstance(values, dict):
        for name, value in values.items():
            inner = f"{key}.{name}" if key else str(name)
            refuse_interpolation(str(name), prefix, inner)
            refuse_interpolation(value, prefix, inner)
    elif isinstance(values, list):
        for value in values:
            refuse_interpolation(value, prefix, key)
    elif isinstance(values, str) and "${" in values:
        raise ValueError(
            f"{prefix}`{key}` must be a plain value; got {values!r}. Interpolations "
            "are not resolved: write what it stands for."
        )


def _faults(text: str) -> Iterator[str]:
    """What settings must not have, in the order in which the text has it."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        where = f"line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent):
            yield f"{where}: aliases are not read; write the value out."
        elif (tag := getattr(event, "tag", None)) is not None:
            yield f"{where}: the tag {tag!r} is not read; leave it out."
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                yield f"{where}: settings must be nested {DEEPEST} deep at most."
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
