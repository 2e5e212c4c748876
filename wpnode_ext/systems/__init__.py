"""Systems with known equations, to learn from and to judge against."""

from .base import System
from .kuramoto_sivashinsky import KuramotoSivashinsky
from .lorenz63 import Lorenz63
from .lorenz96 import Lorenz96

__all__ = ["KuramotoSivashinsky", "Lorenz63", "Lorenz96", "System"]
