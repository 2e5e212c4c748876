"""Settings of a fit, with the paper's values as defaults.

None means "what the paper uses for this method", which :func:`resolve` fills in; where
an entry says so, the data choose.
"""

import math
from dataclasses import dataclass, replace
from dataclasses import field as setting
from operator import attrgetter
from typing import Any, Literal

from ..common.registry import suggestion
from ..coordinates.scaling import SCALERS
from ..fields.factory import FieldConfig
from ..systems import preset
from ..weak.plan import WeakForm

Method = Literal["auto", "wp", "weak", "strong", "closed_form"]
METHODS: tuple[str, ...] = ("auto", "wp", "weak", "strong", "closed_form")


@dataclass
class StrongForm:
    """Windows of the strong form, and the solver that crosses them.

    Attributes:
        window: samples of a window; None: the paper's.
        stride: samples between first samples of windows; None: every sample starts one
            where the method is "strong", and where it is "wp" there are as many windows
            as segments.
        solver: see :func:`~wpnode_ext.rollout`.
        rtol, atol: tolerances of solvers with adaptive steps.
    """

    window: int | None = None
    stride: int | None = None
    solver: str = "dopri5"
    rtol: float = 1e-6
    atol: float = 1e-6


@dataclass
class ClosedFormConfig:
    """Least squares for the head of a field, and the steps after it.

    Training by gradients takes `symmetry` and `coordinates` from here as well.

    Attributes:
        ridge: in units of the features' size; None: forecasts of held-out data choose.
        ridges: compared then. Data without noise ask for the smallest.
        sparse: whether a polynomial without symmetry keeps only terms that held-out
            segments ask for.
        most_terms: coefficients up to which the choice of terms is solved as one
            problem; for more all are kept.
        steepnesses: of random features, compared where none is set, the flattest
            first: its unknowns are the fewest. Where no evidence is known, the last is
            taken.
        doublings: how often random features may be doubled, while that makes noisy data
            more likely or, without noise, explains more of them.
        doubling_gain: without noise, largest share of the residual before a doubling
            that may remain after it.
        symmetry: "shifts", "mirror" or "odd_mirror" of a ring, joined by "+", or the
            signs of a reflection, "-,-,+".
        coordinates: "fourier" or "pod", fewer coordinates to learn in.
        largest_state: entries of a state up to which "auto" draws features of all of
            them together; larger states get a network.
        largest_error, least_share: a field misses noisy data if its mean square error
            at held-out values is above so many variances of the noise and above this
            share of the signal's variance.
        largest_residual: a field misses data without noise if it leaves more than this
            share of a time derivative over.
        enough: random features are enough, without noise, if they leave less over.
        round_numbers: most numbers, samples times entries of a state, that rounds of a
            refinement work on: bounds their time.
        wide_round_numbers: the same for fields with many unknowns, whose rounds keep
            more for each sample.
    """

    ridge: float | None = None
    ridges: list[float] = setting(
        default_factory=lambda: [0.0, *(10.0**n for n in range(-14, 0))]
    )
    sparse: bool = False
    most_terms: int = 2000
    steepnesses: list[float] = setting(default_factory=lambda: [0.1, 0.3, 1.0])
    doublings: int = 0
    doubling_gain: float = 0.5
    symmetry: str = ""
    coordinates: str = ""
    largest_state: int = 12
    largest_error: float = 2.0
    least_share: float = 1e-3
    largest_residual: float = 0.3
    enough: float = 0.01
    round_numbers: int = 400_000
    wide_round_numbers: int = 80_000_000


@dataclass
class OptimConfig:
    """Optimiser, learning rate on plateaus, early stopping on the training loss.

    Attributes:
        name: an entry of :data:`~wpnode_ext.training.optimisers.OPTIMISERS`.
        lr, weight_decay: of the optimiser.
        batch_size: segments of a batch, windows for the strong method.
        block_overhead: segments of a batch lie in blocks that share samples; longer
            blocks share more and are fewer. The samples a block needs besides those its
            segments have to themselves are at most one in so many.
        epochs: largest number; None: the paper's.
        patience, min_delta: epochs without an improvement by so much that end training.
        plateau_patience, plateau_factor, plateau_threshold, min_lr: the rate is
            multiplied by the factor, down to the least one, after so many epochs
            without a relative improvement.
        clip: largest norm of the gradients, or None.
        refit_every: epochs between exact solves for the last layer, from the first
            epoch on; 0: never.
        options: further arguments of the optimiser, numbers and texts.
    """

    name: str = "adam"
    lr: float = 2e-3
    weight_decay: float = 0.0
    batch_size: int = 2048
    block_overhead: int = 8
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
class JointConfig:
    """Refinement of a network: its states as free variables beside the weights.

    Attributes:
        lengths: of the segments. Short ones are needed: long ones do not see what
            changes from sample to sample. Lengths that no stretch has room for are left
            out.
        penalties: weight of the weak residual in each stage. With less the states
            return to the data, noise and all.
        steps: of the optimiser, in each stage.
        lr: rate for the weights; it falls to zero in every stage like a cosine.
        states_lr: rate for the states, in units of the noise.
        leap: where large weights almost cancel, a step may raise the sum by orders of
            magnitude. A stage whose sum rises by this factor begins again with a tenth
            of the rate.
        least_lr: share of `lr` below which the rate is not lowered for that.
        held_out: share of the values that judge the stages.
        process_noise: of the smoother that follows, tried from the largest on, in units
            of the noise. Errors of a network stay alike for many samples: with 0.01
            error bars were too short by half.
    """

    lengths: list[int] = setting(default_factory=lambda: [4, 6, 16, 50])
    penalties: list[float] = setting(default_factory=lambda: [10.0, 100.0, 1000.0])
    steps: int = 200
    lr: float = 1e-3
    states_lr: float = 5e-2
    leap: float = 10.0
    least_lr: float = 1e-4
    held_out: float = 0.05
    process_noise: list[float] = setting(default_factory=lambda: [0.1, 0.03])


@dataclass
class ValidationConfig:
    """Forecasts from filtered held-out states, which choose weights and ridges.

    Attributes:
        fraction: share of every series, at its end, that is held out.
        every: epochs between forecasts.
        starts: number of forecasts.
        horizon: samples of a forecast; None: a quarter of the longest held-out stretch,
            at most 500.
        filter_share: bumps of the filter are ``ell / filter_share`` samples apart where
            the choice of the weak form has not found their distance.
    """

    fraction: float = 0.1
    every: int = 10
    starts: int = 32
    horizon: int | None = None
    filter_share: int = 6


@dataclass
class TrainConfig:
    """All settings of a fit.

    Attributes:
        method: "auto" chooses the closed form or "wp".
        refine: whether field and states are improved together; None: in the closed form
            alone.
        ensemble: number of other fields that suit the data about as well as the best
            one, for forecasts with a spread.
        ensemble_blocks, ensemble_segments: where members are fitted to blocks of the
            record drawn with replacement, number of blocks and their least length in
            segments.
        lam: weight of the strong term of "wp".
        weak, strong, field, optim, closed_form, joint, validation: groups of settings.
        scaler: of the state.
        scaler_per: entries of the state that are scaled alike, see
            :class:`~wpnode_ext.coordinates.scaling.Scaler`; "auto": all sites, for a
            field that is one map at all of them.
        seed: of everything that is drawn.
        device: "cpu", "cuda" or "cuda:1".
        amp, compile: mixed precision and ``torch.compile``, for training by gradients.
        checkpoint_seconds: time between checkpoints within an epoch.
        tensorboard: whether a run writes for TensorBoard.
    """

    method: Method = "auto"
    refine: bool | None = None
    ensemble: int = 0
    ensemble_blocks: int = 40
    ensemble_segments: int = 4
    lam: float = 0.5
    weak: WeakForm = setting(default_factory=WeakForm)
    strong: StrongForm = setting(default_factory=StrongForm)
    field: FieldConfig = setting(default_factory=FieldConfig)
    optim: OptimConfig = setting(default_factory=OptimConfig)
    closed_form: ClosedFormConfig = setting(default_factory=ClosedFormConfig)
    joint: JointConfig = setting(default_factory=JointConfig)
    validation: ValidationConfig = setting(default_factory=ValidationConfig)
    scaler: str = "minmax"
    scaler_per: Literal["auto", "component", "channel", "whole"] = "auto"
    seed: int = 0
    device: str = "cpu"
    amp: bool = False
    compile: bool = False
    checkpoint_seconds: float = 30.0
    tensorboard: bool = False


# The paper's weak form for Lorenz-63.
_PAPER = {"p": 8, "ell": 50, "q": 2}
# The paper's values for each method: rollout window, largest number of epochs, patience
# and smallest improvement of early stopping. Of the scheduler's patience it says "up
# to" that of early stopping; with half of it the rate falls before training stops.
_BY_METHOD: dict[str, dict[str, Any]] = {
    "strong": {"window": 25, "epochs": 300, "patience": 10, "min_delta": 1e-6},
    "weak": {"window": 2, "epochs": 20_000, "patience": 200, "min_delta": 1e-7},
    "wp": {"window": 2, "epochs": 20_000, "patience": 200, "min_delta": 1e-7},
}


# Smallest values of settings that are counts or weights.
_LEAST: dict[str, int] = {
    "ensemble": 0,
    "ensemble_blocks": 1,
    "ensemble_segments": 1,
    "lam": 0,
    "joint.steps": 1,
    "optim.batch_size": 1,
    "optim.block_overhead": 1,
    "optim.epochs": 1,
    "validation.every": 1,
    "validation.filter_share": 1,
    "validation.starts": 1,
    "validation.horizon": 1,
}


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
    """Raises ValueError, with the nearest name, for an unknown method or scaler."""
    SCALERS.find(config.scaler)
    if config.method not in METHODS:
        raise ValueError(
            f"`method` must be one of {', '.join(METHODS)}; got {config.method!r}."
            f"{suggestion(config.method, METHODS)}"
        )


def paper_config(
    name: str, method: Method = "wp", *, window: int | None = None
) -> TrainConfig:
    """The paper's settings for a system and a method, every entry filled in.

    Of all systems alike: Adam with a rate of 2e-3, halved on plateaus of the training
    loss (relative threshold 1e-4) down to 1e-6; early stopping after 10 epochs without
    an improvement by 1e-6 for "strong", 200 and 1e-7 for the others; at most 300 and
    20 000 epochs; dopri5 with tolerances of 1e-6; GELU networks. Batches of 2048 are
    stated for Lorenz-63 and taken for all. Of the scheduler's patience the paper says
    "up to 200 epochs"; half the patience of early stopping is taken, with which the
    rate falls before training ends.

    Args:
        name: "lorenz63", "lorenz96" or "kuramoto_sivashinsky"; also "l63" etc.
        method: "wp", "weak" or "strong".
        window: samples T of a strong window, where the paper lists several (2 to 6 for
            "wp" on Lorenz-96 and KS, 25 and 50 for "strong" on KS); default the first.

    Example:
        >>> model = WPNODE(config=paper_config("lorenz63", "weak"))
    """
    if method not in ("wp", "weak", "strong"):
        raise ValueError(
            f"`method` must be 'wp', 'weak' or 'strong', the paper's; got {method!r}."
        )
    listed = preset(name)
    if window is None:
        window = listed.strong_windows[0] if method == "strong" else listed.window
    return resolve(
        TrainConfig(
            method=method,
            lam=listed.lam,
            weak=WeakForm(listed.p, listed.ell, listed.q),
            strong=StrongForm(window=window),
            field=FieldConfig(kind="mlp", hidden=list(listed.hidden)),
        )
    )
