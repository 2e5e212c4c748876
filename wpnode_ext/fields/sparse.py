"""Fields of which most coefficients are known to be zero."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .linear import LinearField
from .restricted import RestrictedField


class SparseField(RestrictedField):
    """``f_d(u) = sum of c_jd base.features_j(u)`` over the pairs (j, d) of a support.

    Args:
        base: the field of all terms, e.g. a :class:`LibraryField`.
        support: which coefficients may differ from zero, ``[F, D]``; for instance of
            :func:`~wpnode_ext.closed_form.find_support`.

    Attributes:
        coefficients: those of the support, feature by feature, ``[J, 1]``.
    """

    support: Tensor
    _feature: Tensor
    _entry: Tensor

    def __init__(self, base: LinearField, support: Bool[Tensor, "F D"]) -> None:
        if support.shape != base.coefficients.shape or not support.any():
            raise ValueError(
                f"`support` must have shape {list(base.coefficients.shape)} and at "
                f"least one entry; got {int(support.sum())} in {list(support.shape)}."
            )
        super().__init__(base, int(support.sum()))
        feature, entry = support.nonzero(as_tuple=True)
        self.register_buffer("support", support.bool())
        self.register_buffer("_feature", feature, persistent=False)
        self.register_buffer("_entry", entry, persistent=False)

    @property
    def basis(self) -> Float[Tensor, "F D J"]:  # type: ignore[override]
        """One head with a single one for every coefficient; made when it is asked."""
        shape = (*self.support.shape, len(self._feature))
        made = self.coefficients.new_zeros(shape)
        number = torch.arange(len(self._feature), device=made.device)
        made[self._feature, self._entry, number] = 1.0
        return made

    def feature_sizes(self, u: Float[Tensor, "N D"]) -> Float[Tensor, " J"]:
        """Of a feature that is zero at all entries of the state but one."""
        return self.base.feature_sizes(u)[self._feature] / self.dim**0.5

    def _make_head(self) -> Float[Tensor, "F D"]:
        head = self.coefficients.new_zeros(self.support.shape)
        place = (self._feature, self._entry)
        return head.index_put(place, self.coefficients[:, 0])

    def _expand(self, phi: Float[Tensor, "*batch F"]) -> Float[Tensor, "*batch D J"]:
        values = phi.new_zeros(*phi.shape[:-1], self.dim, len(self._feature))
        number = torch.arange(len(self._feature), device=phi.device)
        values[..., self._entry, number] = phi[..., self._feature]
        return values
