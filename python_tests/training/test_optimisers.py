"""Optimisers by name: those of the package, and one added from outside."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer

from training_cases import DT, oscillator_data, small_config, small_field
from wpnode_ext import WPNODE
from wpnode_ext.data import make_series
from wpnode_ext.settings import TrainConfig
from wpnode_ext.settings.config import OptimConfig
from wpnode_ext.settings.text import load
from wpnode_ext.training import OPTIMISERS, Session, Trainer, checkpoint


class SignMomentum(Optimizer):
    """Steps of one length in the direction of the sign of averaged gradients."""

    def __init__(self, groups: Any, lr: float, decay: float) -> None:
        super().__init__(groups, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                mean = state.setdefault("mean", torch.zeros_like(weight))
                mean.lerp_(weight.grad, 1 - group["decay"])
                weight.sub_(group["lr"] * mean.sign())


@pytest.fixture
def sign() -> Iterator[str]:
    """The name of an optimiser that is there during a test."""
    name = "sign_momentum"
    OPTIMISERS.add(
        name, lambda groups, config: SignMomentum(groups, config.lr, **config.options)
    )
    yield name
    OPTIMISERS.remove(name)


def trained(name: str, epochs: int, session: Session, resume: bool = False) -> Tensor:
    optim = {"name": name, "epochs": epochs, "lr": 3e-3, "options": {"decay": 0.7}}
    record = make_series(oscillator_data(), dt=DT)
    trainer = Trainer(small_field(), record, small_config(optim=optim), session=session)
    if resume:
        assert session.folder is not None
        trainer.resume(session.folder / "last.pt")
    history = trainer.run().history
    assert history[-1]["loss"] < 2 * history[0]["loss"]
    weights = checkpoint.load(session.folder / "last.pt", "training")["model"]
    return torch.cat([w.flatten() for w in weights.values()])


def test_an_optimiser_from_outside_trains_and_resumes_to_the_same_bits(
    sign: str, tmp_path
) -> None:
    whole = trained(sign, 6, Session(folder=tmp_path / "whole"))
    part = Session(folder=tmp_path / "part")
    trained(sign, 3, part)
    assert torch.equal(trained(sign, 6, part, resume=True), whole)
    adam = small_config(optim={"epochs": 6, "lr": 3e-3})
    assert adam.optim.name == "adam"


def test_the_estimator_and_the_command_take_it_by_name(sign: str, tmp_path) -> None:
    settings = {
        "method": "weak",
        "weak": {"p": 4, "ell": 20, "q": 2},
        "field.hidden": [8],
        "optim": {"name": sign, "epochs": 2, "options": {"decay": 0.5}},
    }
    model = WPNODE(config=settings).fit(oscillator_data(200), DT)
    assert model.config_.optim.options == {"decay": 0.5}
    pytest.importorskip("omegaconf")
    words = [f"optim.name={sign}", "optim.options.decay=0.5"]
    assert load(TrainConfig, None, words).optim.options == {"decay": 0.5}
    (tmp_path / "a.yaml").write_text("optim:\n  options:\n    decay: 0.25\n")
    found = load(TrainConfig, tmp_path / "a.yaml")
    assert found.optim.options == {"decay": 0.25}


def test_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(ValueError, match=r"`optim.name` .* Did you mean 'adamw'\?"):
        WPNODE(config={"optim.name": "adam_w"})
    with pytest.raises(ValueError, match=r"`optim.name` must be one of adam, adamw"):
        Trainer(
            small_field(),
            make_series(oscillator_data(), dt=DT),
            small_config(optim={"name": "newton"}),
        )
    with pytest.raises(ValueError, match=r"`method` .* Did you mean 'closed_form'\?"):
        WPNODE(method="closedform")  # type: ignore[arg-type]


def test_adam_and_adamw_are_those_of_torch() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    config = OptimConfig(lr=0.1, weight_decay=0.01, options={"amsgrad": True})
    for name, kind in (("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)):
        made = OPTIMISERS.find(name)([{"params": [weight]}], config)
        assert type(made) is kind
        group = made.param_groups[0]
        assert (group["lr"], group["weight_decay"]) == (0.1, 0.01) and group["amsgrad"]
