"""Coordinates to learn in: scalers, fewer coordinates, and symmetries."""
