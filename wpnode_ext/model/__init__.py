"""A fitted model: forecasts, ensembles, equations, verdict, files."""
