"""Learn by gradients: a network, then its states and its ensemble if asked for."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..data import Series
from ..fields import Forcing, make_field
from ..fields.base import attach_forcing
from ..settings.config import TrainConfig
from ..smoothing import first_states, is_negligible, smooth_states
from ..training.joint import JointResult, train_jointly, without
from ..training.log import RunLog
from ..training.run_folder import Run
from ..training.trainer import Row, Session, Trainer, TrainResult
from ..training.validation import ForecastValidation
from .choose import Choice
from .ensemble import resampled
from .files import RefinedStates, write_states
from .inputs import common_clock
from .prepare import Learned, Prepared, filtered, make_record


def train_network(
    data: Prepared,
    choice: Choice,
    run: Run,
    *,
    dtype: torch.dtype = torch.float32,
) -> Learned:
    """Trains a network, and refines its states and trains an ensemble if asked for.

    A member is another network, first weights and order of the batches by another seed,
    trained with the same settings on blocks of the record drawn with replacement. The
    held-out data that choose the weights are the same.

    Args:
        data: the observations.
        choice: settings, and the user's own field if there is one, which is trained in
            place.
        run: processes, folder and log.
        dtype: precision of training.
    """
    config, own = choice.config, choice.declared.field
    for name in ("refine", "ensemble"):
        if getattr(config, name) and data.series.forcing is not None:
            raise ValueError(
                f"`{name}` must be {type(getattr(config, name))()} for a network with "
                f"inputs; got {getattr(config, name)}."
            )
    if run.resume and run.folder is None:
        raise ValueError("`resume` needs the `run` folder to continue.")
    first, (record, validate, forcing) = deepcopy(own), records(data, choice, dtype)

    def make(seed: int) -> nn.Module:
        if first is not None:
            return deepcopy(first)
        generator = torch.Generator().manual_seed(seed)
        return make_field(config.field, data.scaled_shape, data.forcing_dim, generator)

    field = own or make(config.seed)
    attach_forcing(field, forcing)
    training = _Training(data, validate, run, dtype)
    with run.log(tensorboard=config.tensorboard, metrics=True) as log:
        if validate is None:
            log.say("no held-out data: the training loss decides the weights kept")
        result = training.fit(field, record, config, log, run.checkpoints)
        refined = None
        if config.refine and result.signal is None:
            refined = refine_network(field, data, config, say=log.say)
    if refined is not None:
        run.keep(lambda folder: write_states(folder.states, refined))
    members: list[nn.Module] = []
    while result.signal is None and len(members) < config.ensemble:
        number = len(members) + 1
        asked = replace(config, seed=config.seed + number)
        members.append(make(asked.seed))
        signal = training.fit_member(members[-1], number, asked)
        if signal is not None:
            # The ensemble is whole or not there.
            members, result = [], replace(result, signal=signal)
    return Learned(
        field=field,
        config=config,
        scaler=data.scaler,
        result=result,
        members=members,
        refined=refined,
    )


def records(
    data: Prepared, choice: Choice, dtype: torch.dtype
) -> tuple[Series, ForecastValidation | None, Forcing | None]:
    """The scaled training data, forecasts of the held-out data, and the inputs.

    Args:
        data: the observations.
        choice: settings; with the filter of its weak form held-out data are smoothed.
        dtype: precision of training.
    """
    held_out, config = data.held_out, choice.config
    parts = [data.training] if held_out is None else [data.training, held_out]
    clocks, forcing = common_clock(parts, data.forcing_scaler)
    record = make_record(data.training, data.scaler, clocks[0], dtype)
    if held_out is None:
        return record, None, forcing
    q_filter = None if choice.weak is None else choice.weak.q_filter
    smooth = filtered(held_out, config, q_filter)
    validate = ForecastValidation(
        make_record(smooth, data.scaler, clocks[1], dtype),
        starts=config.validation.starts,
        horizon=config.validation.horizon,
    )
    return record, validate, forcing


@dataclass(frozen=True)
class _Training:
    """Data, validation and place that all networks of one fit share."""

    data: Prepared
    validate: ForecastValidation | None
    run: Run
    dtype: torch.dtype

    def fit(
        self,
        field: nn.Module,
        record: Series,
        config: TrainConfig,
        log: RunLog,
        checkpoints: Path | None,
    ) -> TrainResult:
        """Trains one network, from its last checkpoint where a run is resumed."""
        last = self.run.checkpoint(checkpoints)
        trainer = Trainer(
            field,
            record,
            config,
            validate=self.validate,
            symmetry=self.data.maps,
            session=Session(
                reporter=log,
                folder=checkpoints,
                group=self.run.group,
                extra={"scaler": self.data.scaler.state_dict()},
            ),
        )
        if last is not None:
            trainer.resume(last)
        return trainer.run()

    def fit_member(
        self, member: nn.Module, number: int, config: TrainConfig
    ) -> int | None:
        """Trains a member of the ensemble; the signal that stopped it, if one did."""
        generator = torch.Generator().manual_seed(config.seed)
        part = resampled(self.data.training, config, generator)
        record = make_record(part, self.data.scaler, part.times, self.dtype)
        folder = self.run.folder
        checkpoints = None if folder is None else folder.member(number)
        with self.run.log() as log:
            log.say(f"member {number} of {config.ensemble} of the ensemble")
            result = self.fit(member, record, config, log, checkpoints)
            if config.refine and result.signal is None:
                scaled = self.data.scale(part)
                noise = first_states(scaled).sigma
                _jointly(member, scaled, noise, self.data, config)
        return result.signal


def refine_network(
    field: nn.Module,
    data: Prepared,
    config: TrainConfig,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> RefinedStates:
    """Improves a trained network and the states of all observations together.

    After :func:`~wpnode_ext.training.joint.train_jointly` the states are smoothed with
    the field, from all values. The error of the field from sample to sample that the
    smoother allows for is the least that predicts hidden values clearly better.

    Returns:
        States, and as their error bars the standard deviations that follow from the
        noise and from this error of the field, were it independent at every sample.
        They do not include an error of the network as a whole; an ensemble shows it.
    """
    scaled, noise, scaler = data.scaled, data.first.sigma, data.scaler
    if is_negligible(noise, scaled):
        say("refinement: the data have no noise to remove")
        std = scaler.spread(noise.expand(scaled.v.shape).clone())
        return RefinedStates(data.series.v.double(), std, scaler.spread(noise), [])
    found = _jointly(
        field,
        scaled,
        noise,
        data,
        config,
        progress=lambda row: say(
            f"stage {row['epoch'] + 1:.0f}: held-out error {row['loss']:.3f} noise "
            f"variances, penalty {row['penalty']:g}"
        ),
    )
    assert found is not None
    say(f"refinement: {found.reason}")
    levels = config.joint.process_noise
    states, std, last = _smoothed(field, scaled, found, levels)
    return RefinedStates(
        scaler.inverse(states),
        scaler.spread(std),
        scaler.spread(noise),
        [*found.history, last],
        last["process_noise"],
    )


def _jointly(
    field: nn.Module,
    scaled: Series,
    noise: Float[Tensor, "..."],
    data: Prepared,
    config: TrainConfig,
    **more: Any,
) -> JointResult | None:
    """Trains a network with the states of noisy data; None for data without noise."""
    if is_negligible(noise, scaled):
        return None
    return train_jointly(
        field,
        scaled,
        noise,
        config.joint,
        p=config.weak.p,
        symmetry=data.maps,
        seed=config.seed,
        **more,
    )


def _smoothed(
    field: nn.Module, series: Series, found: JointResult, levels: Sequence[float]
) -> tuple[Float[Tensor, "N ..."], Float[Tensor, "N ..."], Row]:
    """States and error bars, and how hidden values were predicted on the way."""
    model, noise = deepcopy(field).cpu(), found.sigma
    kept, states, hidden = without(series, found.hidden), found.states, found.hidden
    chosen, least = levels[0], None
    for level in levels:
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
            # In doubt the smoother allows for a larger error: error bars are wider.
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
