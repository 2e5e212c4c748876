"""The compiled operators as differentiable functions; see :mod:`.functions`."""

from .functions import corr, corr_t, corr_w, squared_residual

__all__ = ["corr", "corr_t", "corr_w", "squared_residual"]
