"""Delta tables as sources and lookup tables."""
