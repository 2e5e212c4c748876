"""Coordinates to learn in: scaled, fewer, and seen under symmetries."""
