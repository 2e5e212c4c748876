"""A second fit, a fit that is given up, and arguments that are not used."""

from typing import Any

import numpy as np
import pytest
import torch

from training_cases import DT, oscillator_data
from trajectories import lorenz63, normal
from wpnode_ext import WPNODE, make_series
from wpnode_ext.coordinates.symmetry import Symmetry
from wpnode_ext.settings.config import FieldConfig, OptimConfig, TrainConfig, WeakForm
from wpnode_ext.training.run_folder import RunFolder


def settings(**more: Any) -> TrainConfig:
    return TrainConfig(
        weak=WeakForm(p=4, ell=30, q=2),
        field=FieldConfig(kind="library", degree=1, hidden=[8]),
        optim=OptimConfig(patience=1),
        **more,
    )


def noisy(n: int = 400) -> torch.Tensor:
    return oscillator_data(n).double() + 0.05 * normal(n, 2)


def test_a_second_fit_keeps_nothing_of_the_first() -> None:
    model = WPNODE(config=settings(), ensemble=3).fit(noisy(), DT)
    assert model.states_ is not None and model.sigma_ is not None and model.members_
    model.config = settings(method="weak")
    model.fit(noisy(), DT)
    assert model.states_ is None and model.states_std_ is None and model.sigma_ is None
    assert not model.members_ and not hasattr(model, "solved_")
    with pytest.raises(ValueError, match="one of `dt` and `t`"):
        model.fit(noisy())
    # Data that cannot be used leave the model as it was.
    assert model.config_.method == "weak"


def test_a_field_that_is_given_up_leaves_nothing_behind(tmp_path) -> None:
    u = lorenz63(900, 0.02)
    v = u + 0.02 * u.std(0) * normal(*u.shape)
    model = WPNODE(config=settings()).fit(v, 0.02, run=tmp_path)
    assert model.config_.method == "wp"
    assert model.sigma_ is None and not hasattr(model, "solved_")
    folder = RunFolder(tmp_path)
    assert not folder.states.exists()
    assert "the closed form is given up: held-out values" in folder.log.read_text()
    assert model.why_.endswith("; 'mlp' is trained in place of the field 'library'")
    # Asked for, it is kept with its states, whatever speaks against it.
    kept = WPNODE(config=settings(), method="closed_form").fit(v, 0.02, run=tmp_path)
    assert kept.solved_.complaint and folder.states.exists()


def test_the_closed_form_names_arguments_it_does_not_use() -> None:
    model = WPNODE(config=settings(), scaler="minmax", refine=False)
    model.fit(noisy(), DT, validation=make_series(noisy(), dt=DT))
    assert "zero mean and unit spread, not by `scaler='minmax'`" in model.why_
    assert "`validation` is not used" in model.why_
    plain = WPNODE(config=settings(), refine=False).fit(noisy(), DT)
    assert plain.why_ == "the field 'library' is linear in its coefficients"


def test_a_matrix_of_numpy_gives_coordinates() -> None:
    v = noisy() @ normal(2, 5)
    directions = np.linalg.svd(v.numpy(), full_matrices=False)[2][:2].T
    model = WPNODE(config=settings(), coordinates=directions, refine=False)
    assert model.fit(v, DT).scaler_.scaled_shape((5,)) == (2,)
    with pytest.raises(TypeError, match="`coordinates` must hold real numbers"):
        WPNODE(coordinates=np.array(["pod"]))


def test_a_matrix_is_no_symmetry() -> None:
    for matrix in (-torch.eye(2), -np.eye(2)):
        with pytest.raises(TypeError, match=r"Symmetry\(\[g\]\)"):
            WPNODE(symmetry=matrix)  # type: ignore[arg-type]
    WPNODE(symmetry=Symmetry([-torch.eye(2)]))
