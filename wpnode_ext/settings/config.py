"""Settings of a training run: typed, with the paper's values as defaults.

``None`` means "what the paper uses for this method", which :func:`resolve` fills in;
where an entry says so, it means that the data choose.
"""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from dataclasses import field as setting
from operator import attrgetter
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
from ..fields.factory import FieldConfig
from ..weak.plan import WeakForm
from .text import check_plain, in_one_line, read_settings, refuse_interpolation

Method = Literal["auto", "wp", "weak", "strong", "closed_form"]
METHODS: tuple[str, ...] = ("auto", "wp", "weak", "strong", "closed_form")


@dataclass
class StrongForm:
    """Windows of `window` samples, `stride` apart, solved with `solver`.

    By default every sample starts a window where the method is "strong", and there are
    as many windows as segments where it is "wp".
    """

    window: int | None = None
    stride: int | None = None
    solver: str = "dopri5"
    rtol: float = 1e-6
    atol: float = 1e-6


@dataclass
class ClosedFormConfig:
    """Least squares for the head of a field, and what follows.

    `ridge` None: chosen by forecasts of held-out data. `sparse`: of a polynomial
    without symmetry only terms are learned that held-out segments ask for.
    `doublings`: how often random features may be doubled, while that makes noisy data
    more likely or, without noise, explains more of them; see :mod:`.feature_search`.
    Training by gradients heeds the rest as well: `symmetry`: "shifts", "mirror" or
    "odd_mirror" of a ring, joined by "+", or the signs of a reflection, "-,-,+";
    `coordinates`: "fourier" or "pod", fewer coordinates to learn in.
    """

    ridge: float | None = None
    sparse: bool = False
    doublings: int = 0
    symmetry: str = ""
    coordinates: str = ""


@dataclass
class OptimConfig:
    """Optimiser, learning rate on plateaus, early stopping on the training loss.

    `batch_size` counts segments (windows for the strong method). Every `refit_every`
    epochs, from the first on, the last layer is solved for; 0: never. `options` are
    further arguments of the optimiser, numbers and texts.
    """

    name: str = "adam"
    lr: float = 2e-3
    weight_decay: float = 0.0
    batch_size: int = 2048
    epochs: int | None = None
    patience: int | None = None
    min_delta: float | None = None
    plateau_patience: int | None = None
    plateau_factor: float = 0.5
    plateau_threshold: float = 1e-4
    min_lr: float = 1e-6
    clip: float | None = None
    refit_every: int = 0
    options: dict[str, Any] = setting(default_factory=dict)


@dataclass
class ValidationConfig:
    """Forecasts from `starts` filtered held-out states, every `every` epochs.

    `fraction` of the record, at its end, is held out; forecasts run for `horizon`
    samples, by default a quarter of the longest held-out stretch, at most 500.
    """

    fraction: float = 0.1
    every: int = 10
    starts: int = 32
    horizon: int | None = None


@dataclass
class TrainConfig:
    """Everything the trainer needs besides the data.

    `refine`: field and states improved together; None: for "closed_form" alone.
    `ensemble`: fields that suit the data about as well as the best one, for forecasts
    with a spread. `scaler_per`: entries of the state that are scaled alike, see
    :class:`~wpnode_ext.coordinates.scaling.Scaler`; "auto": all sites, for a field
    that is one map at all of them.
    """

    method: Method = "auto"
    refine: bool | None = None
    ensemble: int = 0
    lam: float = 0.5
    weak: WeakForm = setting(default_factory=WeakForm)
    strong: StrongForm = setting(default_factory=StrongForm)
    field: FieldConfig = setting(default_factory=FieldConfig)
    optim: OptimConfig = setting(default_factory=OptimConfig)
    closed_form: ClosedFormConfig = setting(default_factory=ClosedFormConfig)
    validation: ValidationConfig = setting(default_factory=ValidationConfig)
    scaler: Literal["minmax", "standard", "identity"] = "minmax"
    scaler_per: Literal["auto", "component", "channel", "whole"] = "auto"
    seed: int = 0
    device: str = "cpu"
    amp: bool = False
    compile: bool = False
    checkpoint_seconds: float = 30.0
    tensorboard: bool = False


# The paper's weak form for Lorenz-63.
_PAPER = {"p": 8, "ell": 50, "q": 2}
# What it lists for each method: rollout window, largest number of epochs, patience and
# smallest improvement of early stopping. Of the scheduler's patience it says "up to"
# that of early stopping; with half of it the rate falls before training stops.
_BY_METHOD: dict[str, dict[str, Any]] = {
    "strong": {"window": 25, "epochs": 300, "patience": 10, "min_delta": 1e-6},
    "weak": {"window": 2, "epochs": 20_000, "patience": 200, "min_delta": 1e-7},
    "wp": {"window": 2, "epochs": 20_000, "patience": 200, "min_delta": 1e-7},
}

# Smallest values of settings that are counts or weights.
_LEAST: dict[str, int] = {
    "ensemble": 0,
    "lam": 0,
    "optim.batch_size": 1,
    "optim.epochs": 1,
    "validation.every": 1,
    "validation.starts": 1,
    "validation.horizon": 1,
}

Config = TypeVar("Config")


def resolve(config: TrainConfig) -> TrainConfig:
    """`config` with the method's values in place of None and "auto", checked."""
    check_names(config)
    method = "wp" if config.method == "auto" else config.method
    config = replace(config, method=method, field=replace(config.field))
    if config.field.kind == "auto":
        config.field.kind = "features" if method == "closed_form" else "mlp"
    defaults = _BY_METHOD.get(method, _BY_METHOD["wp"])
    strong, optim = replace(config.strong), replace(config.optim)
    given = {name: getattr(config.weak, name) for name in _PAPER}
    weak = WeakForm(**{name: given[name] or _PAPER[name] for name in _PAPER})
    if strong.window is None:
        strong.window = defaults["window"]
    if strong.stride is None:
        strong.stride = 1 if config.method == "strong" else weak.q
    for name in ("epochs", "patience", "min_delta"):
        if getattr(optim, name) is None:
            setattr(optim, name, defaults[name])
    if optim.plateau_patience is None:
        optim.plateau_patience = max(1, (optim.patience or 1) // 2)
    if config.refine is None:
        config.refine = method == "closed_form"
    config = replace(config, weak=weak, strong=strong, optim=optim)
    _check_ranges(config)
    return config


def _check_ranges(config: TrainConfig) -> None:
    """Raises ValueError for a number out of its range; NaN is in none."""
    for name, least in _LEAST.items():
        value = attrgetter(name)(config)
        if value is not None and not value >= least:
            raise ValueError(f"`{name}` must be >= {least}; got {value}.")
    if not 0.0 <= config.validation.fraction < 1.0:
        raise ValueError(
            "`validation.fraction` must lie in [0, 1); "
            f"got {config.validation.fraction}."
        )
    if not 0.0 < config.optim.lr < math.inf:
        raise ValueError(
            f"`optim.lr` must be positive and finite; got {config.optim.lr}."
        )
    if not -(2**63) <= config.seed < 2**63:
        raise ValueError(f"`seed` must fit into 64 bits; got {config.seed}.")


def check_names(config: TrainConfig) -> None:
    """Raises ValueError, with the nearest name, for a method that does not exist."""
    if config.method not in METHODS:
        raise ValueError(
            f"`method` must be one of {', '.join(METHODS)}; got {config.method!r}."
            f"{suggestion(config.method, METHODS)}"
        )


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
    """`value`, if it is what an annotation allows; whole numbers serve as floats."""
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
    names = dotted_names(kind)
    base = OmegaConf.structured(kind)
    source = ""  # names the file in an error about its values
    try:
        if path is not None:
            values = read_settings(path)
            _check_names(values, names, str(path))
            source = f"{path}: "
            base = OmegaConf.merge(base, values)
            source = ""
        for entry in overrides:
            key, equals, text = entry.partition("=")
            if not equals:
                raise ValueError(f"overrides must read key=value; got {entry!r}.")
            if key not in names:
                raise ValueError(unknown_key(key, names))
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
    near = [name for name in names if name.rpartition(".")[2] == tail][:1]
    if not near:
        near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    hint = f"Did you mean `{near[0]}`?" if near else f"Known: {', '.join(names)}."
    return f"`{key}` is not a setting. {hint}"


def _check_names(values: Any, names: list[str], source: str, prefix: str = "") -> None:
    if not isinstance(values, dict):
        raise ValueError(f"{source}: expected `key: value` lines at the top level.")
    for key, value in values.items():
        name = f"{prefix}{key}"
        if name not in names:
            raise ValueError(f"{source}: {unknown_key(name, names)}")
        if isinstance(value, dict):
            _check_names(value, names, source, name + ".")
