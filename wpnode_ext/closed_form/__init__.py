"""Fields that are linear in their head, fitted by one least-squares solve."""

from .fit import ClosedFormFit, fit_closed_form
from .refit_head import refit_head
from .ridge import Ridge
from .sparse import find_support

__all__ = ["ClosedFormFit", "Ridge", "find_support", "fit_closed_form", "refit_head"]
