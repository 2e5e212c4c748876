"""A plan separates series, gaps and missing samples, and prepares left-hand sides."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import wpnode_ext as wp
import wpnode_ext.fields
from wpnode_ext.closed_form import fit_closed_form
from wpnode_ext.data import make_series
from wpnode_ext.ops import reference
from wpnode_ext.weak.plan import SegmentSums, WeakForm, prepare, segment_blocks

F64 = torch.float64


def test_segments_keep_to_their_series():
    first, second = torch.randn(60, 3, dtype=F64), torch.randn(75, 3, dtype=F64)
    slopes = torch.randn(135, 3, dtype=F64)
    options = {"dt": 0.1, "ell": 10, "q": 3}
    joint = wp.weak_residual(
        slopes, torch.cat([first, second]), lengths=[60, 75], **options
    )
    apart = [
        wp.weak_residual(slopes[:60], first, **options),
        wp.weak_residual(slopes[60:], second, **options),
    ]
    assert_close(joint, torch.cat(apart), rtol=1e-12, atol=1e-12)


def test_several_series_may_have_times_of_their_own():
    rng = np.random.default_rng(1)
    times = [np.cumsum(rng.uniform(0.5, 1.5, n)) for n in (60, 75)]
    series = [torch.randn(n, 2, dtype=F64) for n in (60, 75)]
    t = torch.from_numpy(np.concatenate(times))
    v, f = torch.cat(series), torch.randn(135, 2, dtype=F64)
    options = {"ell": 10, "q": 3}
    joint = wp.weak_residual(f, v, t=t, lengths=[60, 75], **options)
    apart = [
        wp.weak_residual(f[part], v[part], t=t[part], **options)
        for part in (slice(0, 60), slice(60, 135))
    ]
    assert_close(joint, torch.cat(apart), rtol=1e-11, atol=1e-11)


def test_missing_samples_drop_their_segments_and_are_never_read():
    v, f = torch.randn(2, 100, 3, dtype=F64)
    mask = torch.zeros(100, dtype=torch.bool)
    mask[40] = True
    holes = torch.where(mask[:, None], torch.nan, v)
    options = {"dt": 0.1, "ell": 10, "q": 1}
    full = wp.weak_residual(f, v, **options)
    kept = torch.tensor([k for k in range(90) if not k <= 40 <= k + 10])
    f_holes = torch.where(mask[:, None], torch.nan, f).requires_grad_()
    partial = wp.weak_residual(f_holes, holes, mask=mask, **options)
    assert_close(partial, full[kept])
    loss = wp.weak_loss(f_holes, holes, mask=mask, **options)
    assert_close(loss, full[kept].square().sum() / len(kept))
    loss.backward()
    assert (f_holes.grad[40] == 0).all()
    assert f_holes.grad.isfinite().all()


def test_a_mask_may_differ_between_batch_elements():
    v, f = torch.randn(2, 2, 50, 3, dtype=F64)
    mask = torch.zeros(2, 50, dtype=torch.bool)
    mask[1, 25] = True
    options = {"dt": 0.1, "ell": 10, "q": 2}
    residual = wp.weak_residual(f, v, dim=1, mask=mask, **options)
    apart = [wp.weak_residual(f[b], v[b], mask=mask[b], **options) for b in range(2)]
    assert_close(residual, torch.cat(apart))


def test_plan_computes_the_left_hand_side_once(monkeypatch):
    v = torch.randn(100, 3)
    plan = wp.WeakPlan(v, dt=0.1, ell=10, backend="reference")

    calls = []
    corr = reference.corr
    monkeypatch.setattr(
        reference, "corr", lambda *a, **k: calls.append(1) or corr(*a, **k)
    )
    f = torch.randn(100, 3, requires_grad=True)
    for _ in range(3):
        plan.loss(f).backward()
    assert len(calls) == 3  # the field's sum only
    assert_close(plan.loss(f), wp.weak_loss(f, v, dt=0.1, ell=10))
    assert_close(plan.residual(f) - plan.residual(f * 0), plan.residual(f) - plan.lhs)


@pytest.mark.parametrize("lengths", [None, [70, 80]])
def test_generated_and_stored_weights_agree(lengths, dtype, tolerance):
    t = torch.cumsum(torch.linspace(0.1, 0.2, 150, dtype=F64), 0)
    v, f = torch.randn(2, 150, 3, dtype=dtype)
    options = {"t": t, "ell": 10, "rule": "linear", "lengths": lengths}
    results = []
    for store in (True, False):
        plan = wp.WeakPlan(v, store_weights=store, **options)
        x = f.clone().requires_grad_()
        loss = plan.loss(x)
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        (curved,) = torch.autograd.grad(slope.square().sum(), x)
        plan.loss(x).backward()
        with torch.no_grad():
            alone = plan.loss(x)
        _, tangent = torch.func.jvp(plan.loss, (f,), (v,))
        results.append([loss, alone, slope, curved, x.grad, tangent, plan.residual(f)])
    for stored, generated in zip(*results, strict=True):
        assert_close(generated, stored, rtol=1e2 * tolerance, atol=1e2 * tolerance)


@pytest.mark.parametrize("n", [99, 101])
@pytest.mark.parametrize("loss", [wp.weak_loss, wp.strong_loss])
def test_times_that_are_not_as_many_as_the_samples_are_refused(loss, n) -> None:
    v = torch.randn(100, 2, dtype=F64)
    given = v if loss is wp.weak_loss else lambda t, u: u
    with pytest.raises(ValueError, match=f"`t` must .* 100 samples of `v`; got {n} "):
        loss(given, v, t=torch.arange(n).double())
    with pytest.raises(ValueError, match="`t` must .* 100 samples"):
        loss(given, v, t=torch.arange(n).double()[:, None])


def test_a_loss_and_the_closed_form_see_the_same_segments() -> None:
    # Gaps at places that are no multiples of q: both begin anew after each.
    v = torch.randn(400, 2, dtype=F64)
    mask = torch.zeros(400, 2, dtype=torch.bool)
    mask[[57, 58, 143], 0] = mask[221, 1] = True
    series = make_series([v[:250], v[250:]], dt=0.1, mask=[mask[:250], mask[250:]])
    field, form = wp.fields.LibraryField(2, 2).double(), {"p": 3, "ell": 12, "q": 5}
    fit = fit_closed_form(field, series, ridge=0.0, **form)
    plan = wp.WeakPlan(**series.plan_arguments(), **form)
    assert fit.n_rows == plan.n_segments
    # The mean square of the residual over the segments of either is the same.
    with torch.no_grad():
        loss = plan.loss(field(0.0, series.v))
    assert_close(loss, fit.residual.square().sum(), rtol=1e-10, atol=0.0)
    # It is least there: no other coefficients do better on the segments of the loss.
    coefficients = field.coefficients.detach().clone().requires_grad_()
    features = field.features(series.v)
    plan.loss(features @ coefficients).backward()
    size = plan.loss(torch.zeros_like(series.v)).sqrt()
    assert coefficients.grad.abs().max() < 1e-10 * size * features.abs().max()


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda plan: pickle.loads(pickle.dumps(plan))],
    ids=["copy", "deepcopy", "pickle"],
)
@pytest.mark.parametrize(
    "options",
    [{}, {"backend": "reference"}, {"store_weights": False}],
    ids=["stored", "reference", "generated"],
)
def test_a_plan_can_be_copied_and_pickled(options, duplicate):
    t = torch.cumsum(torch.linspace(0.1, 0.2, 150, dtype=F64), 0)
    v, f = torch.randn(2, 150, 3, dtype=F64)
    plan = wp.WeakPlan(v, t=t, ell=10, rule="linear", lengths=[70, 80], **options)
    other = duplicate(plan)
    one, two = f.clone().requires_grad_(), f.clone().requires_grad_()
    loss, same = plan.loss(one), other.loss(two)
    loss.backward()
    same.backward()
    assert torch.equal(loss, same) and torch.equal(one.grad, two.grad)
    assert torch.equal(plan.residual(f), other.residual(f))
    assert torch.equal(plan.lhs, other.lhs) and torch.equal(plan.starts, other.starts)


@pytest.mark.parametrize("rule", ["auto", "linear"])
def test_blocks_of_segments_have_the_sums_of_all_at_once(monkeypatch, rule) -> None:
    t = torch.cumsum(0.1 + 0.1 * torch.rand(200, dtype=F64), 0)
    v, form = torch.randn(1, 200, 3, dtype=F64), WeakForm(4, 10)
    starts = torch.tensor([0, 1, 7, 40, 41, 90, 189])
    whole = SegmentSums.at(starts, form, t=t, rule=rule)
    monkeypatch.setattr("wpnode_ext.weak.plan._BLOCK", 3)
    blocks = list(segment_blocks(starts, form, t=t, rule=rule))
    assert [len(sums.starts) for sums in blocks] == [3, 3, 1]
    lhs, w_rhs = prepare(blocks, v, torch.float32)
    assert lhs.dtype == w_rhs.dtype == torch.float32
    assert torch.equal(lhs, whole.left(v).float())
    assert torch.equal(w_rhs, whole.w_rhs.float())
    # Irregular times of a plan are prepared in blocks, too.
    plan = wp.WeakPlan(v[0], t=t, p=4, ell=10, starts=starts, rule=rule)
    assert torch.equal(plan.lhs, whole.left(v)[0])


def test_uniform_times_share_their_weights_and_missing_ones_do_not_count() -> None:
    # The step over the gap is not uniform, but no segment contains it.
    t = 0.1 * torch.arange(100, dtype=F64) + (torch.arange(100) >= 50)
    starts = torch.tensor([0, 20, 60])
    (sums,) = segment_blocks(starts, WeakForm(4, 10), t=t)
    assert sums.w_lhs.shape == sums.w_rhs.shape == (11,)
    expected = wp.segment_weights(4, 10, 0.1)
    assert_close((sums.w_lhs, sums.w_rhs), expected, rtol=1e-12, atol=1e-15)
    v, f = torch.randn(2, 1, 100, 2, dtype=F64)
    residual = sums.left(v) + sums.right(f)
    one = wp.weak_residual(f[0, 20:31], v[0, 20:31], dt=0.1, p=4, ell=10)
    assert_close(residual[0, 1:2], one, rtol=1e-10, atol=1e-12)
