"""Judgement: how long a forecast holds, and whether its climate is right."""

from .vpt import VPTResult, bootstrap_interval, normalised_error, vpt

__all__ = ["VPTResult", "bootstrap_interval", "normalised_error", "vpt"]
