"""Settings from text and dictionaries: checked names, types and plain YAML.

No line of a settings file runs, repeats or fetches anything.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import (
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from ..common.registry import suggestion

# Settings have a few hundred lines and two levels; more is another kind of file.
LARGEST, DEEPEST = 1_000_000, 20

Config = TypeVar("Config")


def changed(config: Config, entries: Mapping[str, Any]) -> Config:
    """A copy with new values of entries, named as in "weak.ell"; None is no change."""
    found = replace(config)  # type: ignore[type-var]
    for name, value in entries.items():
        head, _, rest = name.partition(".")
        if value is not None:
            if rest:
                value = changed(getattr(found, head), {rest: value})
            found = replace(found, **{head: value})  # type: ignore[type-var]
    return found


def to_dict(config: Any) -> dict[str, Any]:
    """Nested builtin types, as they are stored in checkpoints and YAML files."""
    return asdict(config)


def from_dict(kind: type[Config], values: dict[str, Any]) -> Config:
    """The dataclass `kind` from nested dictionaries; unknown keys are refused."""
    known = {entry.name: entry for entry in fields(kind)}  # type: ignore[arg-type]
    arguments = {}
    for key, value in values.items():
        if key not in known:
            raise KeyError(unknown_key(key, list(known)))
        inner = known[key].type
        if isinstance(inner, type) and is_dataclass(inner):
            value = from_dict(cast(Any, inner), value)
        arguments[key] = value
    return kind(**arguments)


def from_settings(kind: type[Config], given: Config | Mapping[str, Any]) -> Config:
    """The dataclass `kind` from a dict with dotted keys, nested dicts, or both.

    Raises:
        TypeError: `given` is no dict and no `kind`, or a value has the wrong type.
        ValueError: for a key that does not exist (with the nearest that does), or a
            value that is none of those allowed.
    """
    if isinstance(given, kind):
        return given
    if not isinstance(given, Mapping):
        raise TypeError(
            f"`config` must be a {kind.__name__}, or a dict of settings such as "
            f"{{'weak.ell': 40}}; got {type(given).__name__}."
        )
    return from_dict(kind, _nested(kind, given))


def _nested(kind: type, given: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Checked settings of a dataclass as nested dicts."""
    entries = {entry.name: entry for entry in fields(kind)}
    hints, found = get_type_hints(kind), {}
    grouped: dict[str, Any] = {}
    for key, value in given.items():
        head, dot, rest = str(key).partition(".")
        if head not in entries:
            names = dotted_names(kind, prefix)
            raise ValueError(f"`config`: {unknown_key(prefix + str(key), names)}")
        if not is_dataclass(hints[head]):
            if dot:
                raise ValueError(
                    f"`config`: `{prefix}{head}` has no settings below it; got "
                    f"`{prefix}{key}`."
                )
            found[head] = _checked(prefix + head, value, hints[head])
        elif dot:
            grouped.setdefault(head, {})[rest] = value
        elif isinstance(value, Mapping):
            grouped.setdefault(head, {}).update(value)
        elif isinstance(value, cast(type, hints[head])):
            grouped.setdefault(head, {}).update(asdict(cast(Any, value)))
        else:
            raise TypeError(
                f"`config`: `{prefix}{head}` must be a dict of settings; got {value!r}."
            )
    for name, values in grouped.items():
        found[name] = _nested(cast(type, hints[name]), values, f"{prefix}{name}.")
    return found


def _checked(name: str, value: Any, hint: Any) -> Any:
    """`value`, if it has the annotated type; whole numbers serve as floats."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    for kind in kinds:
        if get_origin(kind) is Literal:
            if value in get_args(kind):
                return value
        elif get_origin(kind) is list:
            inner = get_args(kind)[0]
            if isinstance(value, list | tuple) and all(type(x) is inner for x in value):
                return list(value)
        elif get_origin(kind) is dict:
            if isinstance(value, Mapping) and all(type(key) is str for key in value):
                return dict(value)
        elif kind is float and type(value) is int:
            return float(value)
        elif type(value) is kind:
            return value
    allowed = [x for kind in kinds for x in get_args(kind) if isinstance(x, str)]
    if allowed:
        raise ValueError(
            f"`config`: `{name}` must be one of {', '.join(allowed)}; got {value!r}."
            f"{suggestion(value, allowed)}"
        )
    names = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
    names = names.replace("NoneType", "None")
    raise TypeError(f"`config`: `{name}` must be {names}; got {value!r}.")


def load(
    kind: type[Config],
    path: str | Path | None = None,
    overrides: Sequence[str] = (),
) -> Config:
    """Defaults of the dataclass `kind`, then a YAML file, then ``a.b=value`` overrides.

    Raises:
        ValueError: for a key that does not exist (with the nearest that does), a value
            of the wrong type, or an override that is not ``key=value``.
    """
    try:
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
        from yaml import YAMLError
    except ImportError as error:
        raise ImportError(
            "configuration files need OmegaConf; pip install 'wpnode_ext[train]'."
        ) from error
    base = OmegaConf.structured(kind)
    source = ""  # names the file in an error about its values
    try:
        if path is not None:
            values = read_settings(path)
            _check_keys(values, kind, str(path))
            source = f"{path}: "
            base = OmegaConf.merge(base, values)
            source = ""
        for entry in overrides:
            key, equals, text = entry.partition("=")
            if not equals:
                raise ValueError(f"overrides must read key=value; got {entry!r}.")
            _check_key(key, kind)
            refuse_interpolation(text, "", key)
            check_plain(text, f"`{key}`")
            try:
                base = OmegaConf.merge(base, OmegaConf.from_dotlist([entry]))
            except (YAMLError, OmegaConfBaseException, ValueError) as error:
                detail = in_one_line(error).rstrip(".")
                raise ValueError(f"`{key}`: {detail}.") from None
        return OmegaConf.to_object(base)  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None)
        detail = str(error).splitlines()[0].rstrip(".")
        named = f"`{key}`: {detail}." if key else f"{detail}."
        raise ValueError(source + named) from error


def dotted_names(kind: type, prefix: str = "") -> list[str]:
    """Every key of a nested dataclass, ``a`` and ``a.b`` alike."""
    names = []
    for entry in fields(kind):
        name = prefix + entry.name
        names.append(name)
        if isinstance(entry.type, type) and is_dataclass(entry.type):
            names += dotted_names(entry.type, name + ".")
    return names


def unknown_key(key: str, names: list[str]) -> str:
    """The message for a key that does not exist, with the nearest one that does."""
    # A right last part under a wrong or missing group: ell for weak.ell.
    tail = key.rpartition(".")[2]
    same = [name for name in names if name.rpartition(".")[2] == tail]
    hint = f" Did you mean `{same[0]}`?" if same else suggestion(key, names, quote="`")
    known = f" Known: {', '.join(names)}."
    return f"`{key}` is not a setting.{hint or known}"


def _check_keys(values: Any, kind: type, source: str, prefix: str = "") -> None:
    """Raises ValueError, which begins with `source`, for a key that is no setting."""
    if not isinstance(values, dict):
        raise ValueError(f"{source}: expected `key: value` lines at the top level.")
    for key, value in values.items():
        name = f"{prefix}{key}"
        _check_key(name, kind, f"{source}: ")
        if isinstance(value, dict):
            _check_keys(value, kind, source, name + ".")


def _check_key(name: str, kind: type, prefix: str = "") -> None:
    """Raises ValueError for a key that is no setting; names of options are free."""
    names = dotted_names(kind)
    if name not in names and name.rpartition(".")[0] not in _open_groups(kind):
        raise ValueError(f"{prefix}{unknown_key(name, names)}")


def _open_groups(kind: type, prefix: str = "") -> list[str]:
    """Entries that are dictionaries, whose keys are not known here."""
    found = []
    for name, hint in get_type_hints(kind).items():
        if get_origin(hint) is dict:
            found.append(prefix + name)
        elif is_dataclass(hint):
            found += _open_groups(cast(type, hint), f"{prefix}{name}.")
    return found


def read_settings(path: str | Path) -> dict[str, Any]:
    """The entries of a YAML file, as nested dictionaries of plain values.

    Raises:
        ValueError: the file is no YAML, or has tags, which may make objects, aliases,
            which may make a small file endless, or interpolations, which read the
            environment. The message names the file.
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
    try:
        # An empty file has no root.
        if not isinstance(yaml.compose(text, yaml.SafeLoader), yaml.MappingNode | None):
            raise ValueError("expected `key: value` lines at the top level")
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
    """The complaint of a reader of YAML, with its line."""
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
    """Parts of YAML that settings must not have, in the order of the text."""
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
