"""Files, arrays and names: what every layer may use."""
