"""Connectors: one module per system, one contract each for sources, sinks and lookup tables."""
