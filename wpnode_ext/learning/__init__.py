"""From observations to a fitted field: choose, prepare, learn."""
