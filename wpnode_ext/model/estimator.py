"""Fit, forecast, judge, save: the whole method behind one object."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..common.typing import Array
from ..coordinates.reduced import Coordinates
from ..coordinates.symmetry import Symmetry
from ..data import Data, Series, as_series
from ..fields import as_field, make_field
from ..settings.config import Method, TrainConfig, from_settings, resolve
from ..training.distributed import ProcessGroup
from ..training.log import RunLog
from ..training.run_folder import RunFolder
from ..training.states_file import RefinedStates, write_states
from ..training.trainer import TrainingDiverged
from ..weak.selection import WeakFormChoice
from .assimilation import Assimilator
from .choose import choose_method, choose_weak_form, left_out
from .files import read_model
from .judge import judge_model
from .network import Place, train_network
from .prepare import attach_forcing, hold_out, prepare
from .reduced import checked_coordinates, checked_symmetry
from .search import solve_best
from .verdict import warn_of


class WPNODE(Assimilator):
    """A vector field learned from noisy observations, in the units of the data.

    Args:
        method: "wp" (weak penalty, the paper's), "weak" or "strong", trained by
            gradients; "closed_form", solved by least squares and refined together with
            the states; "auto", the default, takes one of them, see `why_`.
        field: what is trained: "mlp" (the paper's 2 x 200 network), "conv" (a local
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
            `Coordinates`; states and forecasts are told in the units of the data. In
            the closed form what they leave out is predicted from what they hold.
        p, ell, q: the weak form; those not given are chosen from the data by
            :func:`~wpnode_ext.select_weak_form`, where samples are equally spaced.
        lam: weight of the strong term of "wp".
        window: samples of a strong window; default 2 for "wp", 25 for "strong".
        epochs, lr, seed: of the optimiser; defaults by method, see
            :class:`~wpnode_ext.training.OptimConfig`.
        scaler: "minmax" (the paper's), "standard" or "identity"; `symmetry` turns
            "minmax" into "standard", and `coordinates` have unit spread always. Sites
            are scaled alike for a field with ``same_at_sites``, as rings and "conv".
        device: "cpu", "cuda" or "cuda:1"; the closed form computes on the CPU.
        config: all settings at once, or a dict of some with the names the command has,
            {"weak.ell": 40} or {"weak": {"ell": 40}}; the arguments above replace its
            entries.
        verbose: show progress.

    Attributes:
        choice_: how the weak form was chosen, or None.
        result_: how training ended.
        states_, states_std_: refined states at the samples and their error bars, in the
            units of the data; None where states were not refined. For networks see
            :func:`~wpnode_ext.model.refined_network.refine_network`.
        sigma_: noise per component, in the units of the data; None likewise.

    Those of :class:`~wpnode_ext.model.forecaster.Forecaster` hold the model;
    :class:`~wpnode_ext.model.assimilation.Assimilator` finds states of other
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
        given = from_settings(TrainConfig, {} if config is None else config)
        # Settings of a command have more entries; the model keeps those of training.
        names = (entry.name for entry in fields(TrainConfig))
        base = TrainConfig(**{name: getattr(given, name) for name in names})
        top = {"method": method, "lam": lam, "seed": seed, "scaler": scaler}
        base = _with(base, device=device, refine=refine, ensemble=ensemble, **top)
        base.strong = _with(base.strong, window=window)
        base.optim = _with(base.optim, epochs=epochs, lr=lr)
        base.weak = _with(base.weak, p=p, ell=ell, q=q)
        declared = {
            "symmetry": checked_symmetry(symmetry),
            "coordinates": checked_coordinates(coordinates),
        }
        words = {k: x for k, x in declared.items() if isinstance(x, str)}
        base.closed_form = _with(base.closed_form, **words)
        self._declared: dict[str, Any] = {
            k: x for k, x in declared.items() if not isinstance(x, str)
        }
        self._given_scaler = scaler is not None
        self._own_field: nn.Module | None = None
        if isinstance(field, str):
            base.field = replace(base.field, kind=field)
        elif field is not None:
            self._own_field = as_field(field)
        self.config = base
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
        run: RunFolder | str | Path | None = None,
        resume: bool = False,
        group: ProcessGroup | None = None,
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
                closed form does without; `why_` says so.

        Other Args:
            run: folder for checkpoints, metrics and the log.
            resume: continue the run in this folder.
            group: processes that train together.
        """
        series = as_series(v, dt=dt, t=t, mask=mask, forcing=forcing)
        self._forget()
        group = group or ProcessGroup(device=torch.device(self.config.device))
        folder = RunFolder(run) if isinstance(run, str | Path) else run
        with ExitStack() as stack:
            with group.main_first("open the run folder"):
                if group.is_main and folder is not None:
                    stack.enter_context(folder.locked())
            return self._fit(series, validation, folder, resume, group)

    def _fit(
        self,
        series: Series,
        validation: Series | None,
        folder: RunFolder | None,
        resume: bool,
        group: ProcessGroup,
    ) -> "WPNODE":
        method, self.why_ = choose_method(
            series, self.config, self._own_field, processes=group.world
        )
        asked = replace(self.config, method=method)
        if asked.scaler_per == "auto" and self._own_field is not None:
            same = getattr(self._own_field, "same_at_sites", False)
            asked = replace(asked, scaler_per="channel" if same else "component")
        choice, weak = choose_weak_form(series, asked)
        self.choice_ = choice
        config = resolve(replace(asked, weak=weak))
        if config.method == "closed_form":
            self.why_ += left_out(
                config, group.device, self._given_scaler, validation is not None
            )
            complaint = self._solve(series, config, folder, validation)
            if not complaint:
                return self
            self._forget()
            self.choice_ = choice
            field = replace(self.config.field, kind="auto")
            config = resolve(replace(asked, method="wp", weak=weak, field=field))
            self.why_ = f"the closed form was tried, but {complaint}"
            if self._own_field is None and self.config.field.kind != "auto":
                self.why_ += (
                    f"; {config.field.kind!r} is trained in place of the field "
                    f"{self.config.field.kind!r}"
                )
        training = series
        if validation is None:
            training, validation = hold_out(series, config)
        q_filter = None if choice is None else choice.q_filter
        data = prepare(
            training, validation, config, q_filter=q_filter, **self._declared
        )
        forcing_dim = 0 if data.forcing is None else data.forcing.dim
        shape = data.scaler.scaled_shape(tuple(series.state_shape))
        first = deepcopy(self._own_field)

        def make(seed: int) -> nn.Module:
            generator = torch.Generator().manual_seed(seed)
            if first is not None:
                return deepcopy(first)
            return make_field(config.field, shape, forcing_dim, generator)

        field = self._own_field or make(config.seed)
        attach_forcing(field, data.forcing)
        self._set_model(field, data.scaler, data.forcing_scaler, config, series)
        place = Place(folder, resume, group, self.verbose)
        try:
            trained = train_network(field, make, series, training, data, config, place)
        except TrainingDiverged as error:
            if method != "closed_form":
                raise
            raise TrainingDiverged(f"{self.why_}; then a network: {error}") from error
        self.physical_field_.to(self.scaler_device())
        self.result_, self.members_ = trained.result, trained.members
        if trained.refined is not None:
            self._set_states(trained.refined)
        if group.is_main and trained.result.signal is None:
            self._judge(training, validation)
        return self

    def _solve(
        self,
        series: Series,
        config: TrainConfig,
        folder: RunFolder | None,
        validation: Series | None,
    ) -> str:
        """The closed form: no epochs, no held-out part; why it is given up, if it is.

        A field that misses the data is kept where the closed form was asked for.
        """
        with RunLog(log=folder and folder.log, progress=self.verbose) as log:
            log.say(f"method {config.method}: {self.why_}")
            solved, config = solve_best(
                series, self._own_field, config, say=log.say, **self._declared
            )
            if solved.complaint and self.config.method == "auto":
                log.say(f"the closed form is given up: {solved.complaint}")
                return solved.complaint
        attach_forcing(solved.field, solved.forcing)
        self._set_model(
            solved.field, solved.scaler, solved.forcing_scaler, config, series
        )
        self.result_ = solved.result()
        self.solved_, self.members_ = solved, solved.members
        if solved.refinement is not None:
            found = solved.refined_states()
            self._set_states(found)
            if folder is not None:
                write_states(folder.states, found)
        probe = None
        if validation is None:
            probe = solved.without_end(config.validation.fraction)
        self._judge(series, validation, probe=probe, complaint=solved.complaint)
        return ""

    def _judge(
        self,
        series: Series,
        held_out: Series | None,
        *,
        probe: nn.Module | None = None,
        complaint: str = "",
    ) -> None:
        """Sets `verdict_`; warns of a model that should not be used.

        Args:
            series: all that was fitted.
            held_out: what was not, where it was kept apart or given.
            probe: the field fitted without the end of `series`.
        """
        self.verdict_ = judge_model(
            self, series, held_out, probe=probe, complaint=complaint
        )
        warn_of(self.verdict_)

    def _forget(self) -> None:
        """Takes back all that an earlier fit found."""
        for name in [n for n in vars(self) if n.endswith("_")]:
            delattr(self, name)
        self.choice_: WeakFormChoice | None = None
        self.states_: Tensor | None = None
        self.states_std_: Tensor | None = None
        self.sigma_: Tensor | None = None
        self.verdict_ = None

    def _set_states(self, found: RefinedStates) -> None:
        self.states_, self.states_std_ = found.states, found.std
        self.sigma_, self.process_noise_ = found.sigma, found.process_noise


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


def _with(settings: Any, **changes: Any) -> Any:
    """A copy of `settings` with the changes that are not None."""
    return replace(settings, **{k: v for k, v in changes.items() if v is not None})
