"""The paper's training settings for its systems, ready to train with."""

from ..systems import preset
from .config import FieldConfig, Method, StrongForm, TrainConfig, WeakForm, resolve


def paper_config(
    name: str, method: Method = "wp", *, window: int | None = None
) -> TrainConfig:
    """What the paper lists for a system and a method, every entry filled in.

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
