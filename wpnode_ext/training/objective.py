"""The loss of one batch as a module, which data parallelism and compilation wrap."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .. import ops
from ..coordinates.symmetry import Symmetry
from ..data import Series
from ..fields.base import call_field
from ..settings.config import TrainConfig
from ..solvers.strong import solve_windows
from ..weak.plan import prepare, segment_blocks
from ..weak.segments import window_starts
from .batches import Batch


class Objective(nn.Module):
    """Weak and strong terms of a batch, each divided by its count over all processes.

    Terms that depend on the data alone are computed once: the left-hand side of every
    segment of the record, and the weights where times are irregular.

    Args:
        field: the field to train, a module ``field(t, u)``.
        record: the data, scaled, in the precision of training.
        config: resolved settings.
        symmetry: in the coordinates of the data; each batch is seen under one map.
    """

    def __init__(
        self,
        field: nn.Module,
        record: Series,
        config: TrainConfig,
        symmetry: Symmetry | None = None,
    ) -> None:
        super().__init__()
        self.field = field
        self._record, self._clock, self._config = record, record.clock, config
        self._maps = None if symmetry is None else symmetry.matrices.to(record.v)
        if config.method != "strong":
            self._prepare_weak_form()

    def forward(self, batch: Batch) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """``(L_weak, L_strong)``; a term the method has not is zero."""
        t = self._clock[batch.samples]
        v = self._image(self._record.v[batch.samples], batch)
        f, weak, strong = None, v.new_zeros(()), v.new_zeros(())
        if batch.segments is not None:
            f = call_field(self.field, t, v)
            weak = self._weak_term(f, batch)
        if batch.windows is not None and batch.n_windows > 0:
            strong = self._strong_term(v, t, f, batch)
        return weak, strong

    def total(self, weak: Tensor, strong: Tensor) -> Tensor:
        """``L_weak + lam L_strong``, or the one term of a method that has one."""
        if self._config.method == "strong":
            return strong
        return weak + self._config.lam * strong if self._config.method == "wp" else weak

    def _prepare_weak_form(self) -> None:
        record, weak = self._record, self._config.weak
        starts = window_starts(record.runs, weak.ell + 1)
        device, dtype = record.v.device, record.v.dtype
        blocks = segment_blocks(starts, weak, dt=record.dt, t=record.t)
        # Sums are taken in float64 once, then kept as training needs them.
        exact = record.v.reshape(1, len(record.v), -1).to(torch.float64)
        lhs, self._w_rhs = prepare(blocks, exact, dtype)
        self._lhs = lhs[0]
        self._row = torch.full((len(record.v),), -1, device=device)
        self._row[starts.to(device)] = torch.arange(len(starts), device=device)

    def _weak_term(self, f: Tensor, batch: Batch) -> Tensor:
        assert batch.segments is not None
        rows = self._row[batch.segments]
        w = self._w_rhs if self._w_rhs.dim() == 1 else self._w_rhs[rows[0]].contiguous()
        return ops.squared_residual(
            f.to(self._lhs.dtype).reshape(*batch.samples.shape, self._lhs.shape[-1]),
            self._image(self._lhs[rows], batch),
            w,
            q=self._config.weak.q,
            starts=batch.starts,
            scale=1.0 / max(1, batch.n_segments),
        )

    def _strong_term(
        self, v: Tensor, t: Tensor, f: Tensor | None, batch: Batch
    ) -> Tensor:
        strong, window = self._config.strong, self._config.strong.window or 2
        times = [self._at(t, batch, lead) for lead in range(window)]
        steps = [times[lead + 1] - times[lead] for lead in range(window - 1)]
        states = solve_windows(
            self.field,
            self._at(v, batch, 0),
            times[0],
            steps,
            method=strong.solver,
            rtol=strong.rtol,
            atol=strong.atol,
            first_stage=None if f is None else self._at(f, batch, 0),
        )
        errors = [
            (u - self._at(v, batch, lead)).square().sum()
            for lead, u in enumerate(states, start=1)
        ]
        return torch.stack(errors).sum() / (batch.n_windows * (window - 1))

    def _image(self, x: Tensor, batch: Batch) -> Tensor:
        """States, or sums of them, under the map of the batch."""
        if self._maps is None:
            return x
        # Mixed precision would round the data.
        with torch.autocast(x.device.type, enabled=False):
            return x @ self._maps[batch.image].T

    @staticmethod
    def _at(x: Tensor, batch: Batch, lead: int) -> Tensor:
        """The samples `lead` steps into the windows, ``[B W, *state]``."""
        if isinstance(batch.windows, slice):
            inside = batch.windows
            picked = x[:, inside.start + lead : inside.stop + lead : inside.step]
        else:
            assert batch.windows is not None
            picked = x[:, batch.windows + lead]
        return picked.flatten(0, 1)
