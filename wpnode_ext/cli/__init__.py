"""The command ``wpnode``: from a file of observations to a forecast and a report."""

from .main import main

__all__ = ["main"]
