"""Files, arrays and names for every layer."""
