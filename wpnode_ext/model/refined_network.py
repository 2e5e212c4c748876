"""A network refined together with the states of its data, and their error bars."""

from collections.abc import Callable
from copy import deepcopy

from jaxtyping import Float
from torch import Tensor, nn

from ..coordinates.scaling import Scaler
from ..coordinates.symmetry import Symmetry
from ..data import Series
from ..smoothing import first_states, is_negligible, smooth_states
from ..training.joint import JointResult, train_jointly, without
from ..training.states_file import RefinedStates
from ..training.trainer import Row
from .reduced import scaled_series

# Process noise of the smoother that is tried in the end, in units of the noise. Errors
# of a network stay alike for many samples: with 0.01 error bars were too short by half.
LEVELS = (0.1, 0.03)


def refine_network(
    field: nn.Module,
    series: Series,
    scaler: Scaler,
    p: int,
    *,
    symmetry: Symmetry | None = None,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> RefinedStates:
    """Field and states of data in their own units; noise is estimated from them.

    After :func:`train_jointly` the states are smoothed with the field, from all values:
    :func:`~wpnode_ext.smoothing.smooth_states`. The error of the field from sample to
    sample that it allows for is the least that predicts hidden values clearly better.
    The symmetry is that of the scaled states.

    Returns:
        States, and as their error bars the standard deviations that follow from the
        noise and from this error of the field, were it independent at every sample.
        That the network as a whole may be wrong is not in them; an ensemble tells.
    """
    scaled, noise = _scaled(series, scaler)
    if is_negligible(noise, scaled):
        say("refinement: the data have no noise to remove")
        std = scaler.spread(noise.expand(scaled.v.shape).clone())
        return RefinedStates(series.v.double(), std, scaler.spread(noise), [])
    found = train_jointly(
        field,
        scaled,
        noise,
        p=p,
        symmetry=symmetry,
        seed=seed,
        progress=lambda row: say(
            f"stage {row['epoch'] + 1:.0f}: held-out error {row['loss']:.3f} noise "
            f"variances, penalty {row['penalty']:g}"
        ),
    )
    say(f"refinement: {found.reason}")
    states, std, last = _smoothed(field, scaled, found)
    return RefinedStates(
        scaler.inverse(states),
        scaler.spread(std),
        scaler.spread(noise),
        [*found.history, last],
        last["process_noise"],
    )


def refine_member(
    field: nn.Module,
    series: Series,
    scaler: Scaler,
    p: int,
    *,
    symmetry: Symmetry | None = None,
    seed: int = 0,
) -> None:
    """The same for a member of an ensemble, whose states nobody asks for."""
    scaled, noise = _scaled(series, scaler)
    if not is_negligible(noise, scaled):
        train_jointly(field, scaled, noise, p=p, symmetry=symmetry, seed=seed)


def _scaled(series: Series, scaler: Scaler) -> tuple[Series, Float[Tensor, "..."]]:
    scaled = scaled_series(series, scaler, None)
    return scaled, first_states(scaled).sigma


def _smoothed(
    field: nn.Module, series: Series, found: JointResult
) -> tuple[Float[Tensor, "N ..."], Float[Tensor, "N ..."], Row]:
    """States and error bars, and how hidden values were predicted on the way."""
    model, noise = deepcopy(field).cpu(), found.sigma
    kept, states, hidden = without(series, found.hidden), found.states, found.hidden
    chosen, least = LEVELS[0], None
    for level in LEVELS:
        trial = smooth_states(
            model,
            kept,
            sigma=noise,
            process_noise=level * noise,
            start=states,
            error_bars=False,
        ).states
        missed = ((series.v.double() - trial) / noise)[hidden].square()
        if least is not None:
            gain = least - missed
            # In doubt the field is believed less, and error bars are wider.
            if not gain.mean() > gain.std() / len(gain) ** 0.5:
                break
        least, chosen, states = missed, level, trial
    final = smooth_states(
        model, series, sigma=noise, process_noise=chosen * noise, start=states
    )
    assert final.std is not None
    assert least is not None
    loss = least.mean().item()
    row = {"epoch": float(len(found.history)), "process_noise": chosen, "loss": loss}
    return final.states, final.std, row
