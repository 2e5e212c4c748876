"""Fit, forecast, judge, save: the whole method behind one object."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..common.arrays import Array
from ..coordinates.reduced import Coordinates
from ..coordinates.symmetry import Symmetry
from ..data import Data, Series, as_series
from ..fields import as_field
from ..settings.config import Method, TrainConfig, check_names
from ..settings.text import changed, from_settings
from ..training.distributed import ProcessGroup
from ..training.optimisers import OPTIMISERS
from ..training.run_folder import Run, RunFolder
from ..training.trainer import TrainingDiverged
from ..weak.selection import WeakFormChoice
from .choose import Choice, Declared, choose
from .files import read_model, write_states
from .forecaster import Assimilator
from .network import train_network
from .prepare import (
    Learned,
    Prepared,
    checked_coordinates,
    checked_symmetry,
    prepare,
)
from .search import solve_best
from .solve import Solved
from .verdict import judge_model, warn_of


class WPNODE(Assimilator):
    """A vector field learned from noisy observations, in the units of the data.

    Args:
        method: "wp" (weak penalty, the paper's), "weak" or "strong", trained by
            gradients; "closed_form", solved by least squares and refined together with
            the states; "auto", the default, takes one of them, see `why_`.
        field: the field to train: "mlp" (the paper's 2 x 200 network), "conv" (a local
            map shared by a ring of sites), "features" (random features), "library"
            (polynomials), "ring" and "ring_library" (either, as a local map shared by
            a ring of sites), or a module or function ``field(t, u)`` of your own, in
            scaled coordinates. By default "features" for the closed form, else "mlp".
        refine: whether states and field are improved together; by default in the
            closed form alone. For networks see :mod:`wpnode_ext.training.joint`.
        ensemble: number of other fields that suit the data about as well as the best
            one, for :meth:`forecast_ensemble`. The closed form draws them; a network
            is trained as often, with other seeds, on blocks of the record drawn anew.
        symmetry: of the system: a `Symmetry`, or words as in
            :meth:`~wpnode_ext.Symmetry.named`. Networks learn it from minibatches that
            are seen under its maps.
        coordinates: fewer coordinates to learn in, "fourier" (waves of a ring), "pod"
            (directions of largest variance), a matrix ``[D, M]`` of columns or a
            `Coordinates`; states and forecasts are in the units of the data. The closed
            form predicts the rest of a state from its coordinates.
        p, ell, q: the weak form; those not given are chosen from the data by
            :func:`~wpnode_ext.select_weak_form`, where samples are equally spaced.
        lam: weight of the strong term of "wp".
        window: samples of a strong window; default 2 for "wp", 25 for "strong".
        epochs, lr, seed: of the optimiser; defaults by method, see
            :class:`~wpnode_ext.settings.OptimConfig`.
        scaler: "minmax" (the paper's), "standard" or "identity"; `symmetry` turns
            "minmax" into "standard", and `coordinates` have unit spread always. Sites
            are scaled alike for a field with ``same_at_sites``, as rings and "conv".
        device: "cpu", "cuda" or "cuda:1"; the closed form computes on the CPU.
        config: all settings at once, or a dict of some with the names the command has,
            {"weak.ell": 40} or {"weak": {"ell": 40}}; the arguments above replace its
            entries.
        verbose: show progress.

    Attributes:
        choice_: the comparison of weak forms that chose one, or None.
        result_: how training ended.
        solved_: the closed form with all that it found; only there if it was used.
        states_, states_std_: refined states at the samples and their error bars, in the
            units of the data; None where states were not refined. For networks see
            :func:`~wpnode_ext.model.network.refine_network`.
        sigma_: noise per component, in the units of the data; None likewise.

    Those of :class:`~wpnode_ext.model.forecaster.Forecaster` hold the model;
    :class:`~wpnode_ext.model.forecaster.Assimilator` finds states of other
    observations.

    Example:
        >>> model = WPNODE().fit(v, dt=0.01)
        >>> u_hat = model.forecast(v[-1], t=0.01 * torch.arange(200))
        >>> model.save("lorenz.pt")
    """

    def __init__(
        self,
        *,
        method: Method | None = None,
        field: str | nn.Module | Any = None,
        refine: bool | None = None,
        ensemble: int | None = None,
        symmetry: Symmetry | str | None = None,
        coordinates: Coordinates | Array | str | None = None,
        p: int | None = None,
        ell: int | None = None,
        q: int | None = None,
        lam: float | None = None,
        window: int | None = None,
        epochs: int | None = None,
        lr: float | None = None,
        seed: int | None = None,
        scaler: Literal["minmax", "standard", "identity"] | None = None,
        device: str | None = None,
        config: TrainConfig | Mapping[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        self._forget()
        words, self._declared = _declared(field, symmetry, coordinates, scaler)
        arguments = {
            "method": method,
            "refine": refine,
            "ensemble": ensemble,
            "lam": lam,
            "seed": seed,
            "scaler": scaler,
            "device": device,
            "weak.p": p,
            "weak.ell": ell,
            "weak.q": q,
            "strong.window": window,
            "optim.epochs": epochs,
            "optim.lr": lr,
        }
        given = from_settings(TrainConfig, {} if config is None else config)
        # Settings of a command have more entries; the model keeps those of training.
        names = [entry.name for entry in fields(TrainConfig)]
        base = TrainConfig(**{name: getattr(given, name) for name in names})
        self.config = changed(base, arguments | words)
        check_names(self.config)
        OPTIMISERS.find(self.config.optim.name)
        self.verbose = verbose

    def fit(
        self,
        v: Data,
        dt: float | None = None,
        *,
        t: Array | Sequence[Array] | None = None,
        mask: Array | Sequence[Array] | None = None,
        forcing: Array | Sequence[Array] | None = None,
        validation: Series | None = None,
        run: Run | RunFolder | str | Path | None = None,
        resume: bool = False,
    ) -> "WPNODE":
        """Learns the field from one series, or from a list of them.

        Args:
            v: observations ``[N, *state]``, a list of such arrays of different N, or a
                :class:`~wpnode_ext.Series`. NaN marks missing values.
            dt: distance of the samples. Give either `dt` or `t`.
            t: times of the samples, ``[N]`` or a list of such.
            mask: True where a value is missing.
            forcing: known inputs at the samples, ``[N, C]`` or a list of such.
            validation: held-out series that decide the weights that are kept; by
                default the last ``config.validation.fraction`` of every series. The
                closed form does not use them; `why_` says so.

        Other Args:
            run: folder for checkpoints, metrics and the log, or a
                :class:`~wpnode_ext.training.run_folder.Run` with processes that train
                together.
            resume: continue the run in this folder.
        """
        series = as_series(v, dt=dt, t=t, mask=mask, forcing=forcing)
        self._forget()
        where = self._run(run, resume)
        with where.opened():
            choice = self.choose(series, run=where, validation=validation is not None)
            where.started(choice.restart)
            data = prepare(series, validation, choice)
            learned = learn(data, choice, where)
            if learned.complaint and choice.falls_back:
                choice = choice.instead(learned.complaint)
                data = prepare(series, validation, choice)
                learned = learn(data, choice, where)
            self._keep(learned, data, choice, where)
        return self

    def choose(
        self, series: Series, *, run: Run | None = None, validation: bool = False
    ) -> Choice:
        """The settings that :meth:`fit` would take for `series`, and why.

        Args:
            series: observations.
            run: processes that would train together.
            validation: whether held-out series would be given.
        """
        group = self._run(run, False).group
        return choose(
            series,
            self.config,
            self._declared,
            processes=group.world,
            device=group.device,
            validation=validation,
        )

    def _run(self, run: Run | RunFolder | str | Path | None, resume: bool) -> Run:
        if isinstance(run, Run):
            return run
        group = ProcessGroup(device=torch.device(self.config.device))
        folder = RunFolder(run) if isinstance(run, str | Path) else run
        return Run(folder, resume, group, self.verbose)

    def _keep(self, learned: Learned, data: Prepared, choice: Choice, run: Run) -> None:
        """Takes over the learned field; warns of a model that should not be used."""
        config, series = learned.config, data.series
        self._set_model(
            learned.field, learned.scaler, data.forcing_scaler, config, series
        )
        self.physical_field_.to(self.scaler_device())
        self.why_, self.choice_ = choice.why, choice.weak
        self.result_, self.members_ = learned.result, list(learned.members)
        if isinstance(learned, Solved):
            self.solved_ = learned
        found = learned.refined
        if found is not None:
            self.states_, self.states_std_ = found.states, found.std
            self.sigma_, self.process_noise_ = found.sigma, found.process_noise
            run.keep(lambda folder: write_states(folder.states, found))
        if learned.result.signal is not None or not run.group.is_main:
            return
        probe = None
        if data.held_out is None:
            probe = learned.without_end(config.validation.fraction)
        self.verdict_ = judge_model(
            self, data.training, data.held_out, probe=probe, complaint=learned.complaint
        )
        warn_of(self.verdict_)

    def _forget(self) -> None:
        """Removes all that an earlier fit found."""
        for name in [n for n in vars(self) if n.endswith("_")]:
            delattr(self, name)
        self.choice_: WeakFormChoice | None = None
        self.states_: Tensor | None = None
        self.states_std_: Tensor | None = None
        self.sigma_: Tensor | None = None
        self.verdict_ = None


def learn(data: Prepared, choice: Choice, run: Run) -> Learned:
    """The field that suits the observations, by the method chosen.

    Args:
        data: the observations.
        choice: settings, and the user's own field if there is one.
        run: processes, folder and log.
    """
    if choice.config.method != "closed_form":
        try:
            return train_network(data, choice, run)
        except TrainingDiverged as error:
            if not choice.given_up:
                raise
            raise TrainingDiverged(f"{choice.why}; then a network: {error}") from error
    with run.log() as log:
        log.say(f"method closed_form: {choice.why}")
        found = solve_best(data, choice.declared.field, choice.config, say=log.say)
        if found.complaint and choice.falls_back:
            log.say(f"the closed form is given up: {found.complaint}")
    return found


def load(path: str | Path, *, field: nn.Module | None = None) -> WPNODE:
    """The model that :meth:`WPNODE.save` wrote.

    Args:
        path: the file.
        field: the module that was trained, where it was one of your own: only its
            weights are in the file.

    Raises:
        FileNotFoundError, CheckpointError: no such file; damaged, foreign or newer.
    """
    return read_model(path, WPNODE, field)


def _declared(
    field: Any, symmetry: Any, coordinates: Any, scaler: str | None
) -> tuple[dict[str, str], Declared]:
    """Arguments that are words, as settings; and those that are objects."""
    objects = {
        "symmetry": checked_symmetry(symmetry),
        "coordinates": checked_coordinates(coordinates),
    }
    words = {f"closed_form.{k}": x for k, x in objects.items() if isinstance(x, str)}
    if isinstance(field, str):
        words["field.kind"] = field
    own = None if field is None or isinstance(field, str) else as_field(field)
    given = {k: x for k, x in objects.items() if not isinstance(x, str)}
    return words, Declared(own, scaler=scaler is not None, **given)  # type: ignore[arg-type]
