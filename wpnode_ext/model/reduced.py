"""Scaled data, fewer coordinates and declared symmetries."""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..common.arrays import as_float64
from ..common.typing import Array
from ..coordinates.manifold import fit_completion
from ..coordinates.reduced import Coordinates
from ..coordinates.scaling import (
    LinearScaler,
    Per,
    Scaler,
    make_scaler,
    scaler_from_state_dict,
)
from ..coordinates.symmetry import Symmetry
from ..data import Series
from ..fields import (
    FIELDS,
    EquivariantField,
    LibraryField,
    LinearField,
    RandomFeatureField,
    RestrictedField,
)
from ..settings.config import TrainConfig
from ..smoothing import is_wide

# What rounds of a refinement work on at most: samples times entries of a state, and for
# fields with many unknowns samples times what is kept for each.
ROUND_NUMBERS, WIDE_NUMBERS = 400_000, 80_000_000
# Maps closer to orthogonal than this are: a fit weighs all images of the data alike.
ORTHOGONAL = 1e-8


def checked_symmetry(given: Symmetry | str | None) -> Symmetry | str | None:
    """`given`; matrices, which might be meant, are refused with what to write."""
    if given is None or isinstance(given, Symmetry | str):
        return given
    raise TypeError(
        "`symmetry` must be a Symmetry or words such as 'shifts'; got "
        f"{type(given).__name__}. Of a matrix g make one: Symmetry([g])."
    )


def checked_coordinates(
    given: str | Coordinates | Array | None,
) -> str | Coordinates | Tensor | None:
    """`given`; a matrix of any kind as a tensor."""
    if given is None or isinstance(given, str | Coordinates):
        return given
    return as_float64(given, "coordinates")


def declared(
    series: Series,
    config: TrainConfig,
    symmetry: Symmetry | None,
    coordinates: str | Coordinates | Tensor | None,
) -> tuple[Symmetry | None, str | Coordinates | Tensor | None]:
    """Symmetry and coordinates as they were given, or in the words of the settings."""
    words = config.closed_form
    if coordinates is None:
        coordinates = words.coordinates or None
    state = tuple(series.state_shape)
    told = symmetry is not None or words.symmetry or coordinates is not None
    if told and len(state) != 1:
        raise ValueError(
            "`symmetry` and `coordinates` take states of one axis; the data have shape "
            f"{list(state)}. Flatten them."
        )
    if symmetry is None and words.symmetry:
        symmetry = Symmetry.named(words.symmetry, state[0])
    if symmetry is not None and symmetry.dim != state[0]:
        raise ValueError(
            f"`symmetry` must have maps of the {state[0]} entries of a state; got "
            f"{symmetry.dim} x {symmetry.dim}."
        )
    return symmetry, coordinates


def make_state_scaler(
    series: Series,
    config: TrainConfig,
    symmetry: Symmetry | None,
    coordinates: str | Coordinates | Tensor | None,
) -> Scaler:
    """Zero mean and unit spread, alike for components that a symmetry exchanges."""
    if coordinates is not None:
        return reduced_scaler(series, coordinates, symmetry)
    if config.scaler == "identity":
        return make_scaler("identity").fit(series.v)
    if symmetry is None:
        return plain_scaler(series, config, "standard")
    shift, scale = symmetry.statistics(series.v[_whole(series)])
    if _per(config) != "component":
        spread = scale.square().mean() + shift.var(correction=0)
        shift, scale = shift.mean().expand_as(shift), spread.sqrt().expand_as(scale)
    scale = torch.where(scale > 0, scale, 1.0)
    return scaler_from_state_dict(
        {"kind": "standard", "per": "component", "shift": shift, "scale": scale}
    )


def plain_scaler(series: Series, config: TrainConfig, kind: str) -> Scaler:
    """A scaler of the entries of a state, alike at sites that share a map."""
    return make_scaler(kind, _per(config)).fit(series.with_nan())


def _per(config: TrainConfig) -> Per:
    if config.scaler_per != "auto":
        return config.scaler_per
    kind = config.field.kind
    return "channel" if kind in FIELDS and FIELDS.find(kind).shared else "component"


def reduced_scaler(
    series: Series,
    coordinates: str | Coordinates | Tensor,
    symmetry: Symmetry | None,
) -> LinearScaler:
    """To coordinates of zero mean and unit spread, alike for those maps exchange.

    Args:
        series: observations in their own units, ``[N, D]``.
        coordinates: see :meth:`~wpnode_ext.coordinates.reduced.Coordinates.choose`.
        symmetry: of the system, in the units of the data.
    """
    v, whole = series.v.double(), _whole(series)
    found = Coordinates.choose(
        coordinates, v, lengths=series.lengths, missing=series.missing
    )
    if symmetry is None:
        a = found.to(v[whole])
        shift, scale = a.mean(0), a.std(0, correction=0)
    else:
        # About a centre that a map moves, the map is none of the coordinates.
        centre = (symmetry.group @ found.centre.double().cpu()).mean(0)
        found = replace(found, centre=centre)
        a = found.to(v[whole])
        maps = symmetry.in_coordinates(found.encode, found.decode)
        shift, scale = maps.statistics(a)
    return found.scaler(shift, torch.where(scale > 0, scale, 1.0))


def completed(
    scaler: LinearScaler,
    series: Series,
    states: Float[Tensor, "N M"],
    symmetry: Symmetry | None,
) -> LinearScaler:
    """The scaler with what it leaves out, where the coordinates tell it.

    Args:
        scaler: as it was made.
        series: observations in their own units.
        states: refined ones, in scaled coordinates.
        symmetry: of the system, in the units of the data.
    """
    whole, v = _whole(series), series.v.double()
    if v.shape[1] == len(scaler.encode):
        return scaler
    maps = None
    if symmetry is not None and _orthogonal(symmetry.group):
        own = symmetry.in_coordinates(scaler.encode, scaler.decode)
        maps = own.group, symmetry.group
    step = series.dt
    if step is None:
        step = series.times.diff().median().item()
    found = fit_completion(
        (v - scaler.inverse(scaler.transform(v)))[whole],
        states[whole],
        size=v[whole].std().item(),
        # Soon beside what coordinates do, and slow beside any step of a solver.
        rate=1 / (4 * step),
        maps=maps,
    )
    return LinearScaler(scaler.encode, scaler.decode, scaler.shift, found)


def scaled_maps(symmetry: Symmetry | None, scaler: Scaler) -> Symmetry | None:
    """The symmetry in scaled coordinates."""
    if symmetry is None:
        return None
    if isinstance(scaler, LinearScaler):
        symmetry.check_fixed(scaler.shift, scaler.scale.max().item())
        return symmetry.in_coordinates(scaler.encode, scaler.decode)
    return symmetry.scaled(scaler.shift, scaler.scale)


def scaled_series(series: Series, scaler: Scaler, inputs: Scaler | None) -> Series:
    """The series in scaled coordinates; of part of a state none of them is known."""
    mask, forcing = series.mask, None
    if mask is not None and isinstance(scaler, LinearScaler):
        mask = mask.any(1, keepdim=True).expand(-1, len(scaler.encode)).clone()
    if series.forcing is not None and inputs is not None:
        forcing = inputs.transform(series.forcing.flatten(1).double())
    scaled = scaler.transform(series.v.double())
    return replace(series, v=scaled, mask=mask, forcing=forcing)


def restricted(
    field: LinearField, maps: Symmetry | None
) -> tuple[LinearField, Symmetry | None]:
    """The field made to commute with the maps, and those a fit must still apply.

    Polynomials, and random features drawn in families, are restricted to what the maps
    leave open where these are orthogonal and a whole group; for others the data are
    multiplied.
    """
    if maps is None or field.forcing_dim or not maps.is_group:
        return field, maps
    if not _orthogonal(maps.matrices):
        return field, maps
    families = isinstance(field, RandomFeatureField) and _in_families(field, maps)
    if isinstance(field, LibraryField) or families:
        return EquivariantField.of(field, maps.matrices), None
    return field, maps


def wants_forecasts(field: LinearField) -> bool:
    """Whether forecasts, not a score of the fit, should choose the ridge.

    Where sites share coefficients these are few for the data, and the score can tell;
    not for random features under a symmetry of few maps.
    """
    if isinstance(field, RestrictedField):
        return isinstance(field.base, RandomFeatureField)
    return field.sites == 1


def samples_of_rounds(field: LinearField, states: Float[Tensor, "N D"]) -> int:
    """Samples that rounds of a refinement should work on."""
    if not is_wide(field, states):
        return ROUND_NUMBERS // field.dim
    return WIDE_NUMBERS // max(field.dim**2, field.sites * field.n_features)


def _whole(series: Series) -> Bool[Tensor, " N"]:
    """Samples of which no value is missing."""
    whole = ~series.missing
    if not whole.any():
        raise ValueError(
            "`symmetry` and `coordinates` need samples of which no value is missing; "
            "got none."
        )
    return whole


def _orthogonal(maps: Float[Tensor, "G D D"]) -> bool:
    eye = torch.eye(maps.shape[1], dtype=maps.dtype)
    return bool(((maps @ maps.mT - eye).abs() < ORTHOGONAL).all())


def _in_families(field: RandomFeatureField, maps: Symmetry) -> bool:
    """Whether the rows of the hidden layer are those of the first family, mapped."""
    size, rest = divmod(field.width, len(maps))
    if rest or field.depth > 1:
        return False
    w = field.layers()[0][0].double()
    images = torch.cat([w[:size] @ g for g in maps.matrices])
    return bool(torch.allclose(w, images, atol=1e-10))
