"""Connectors: one module per system, one contract for sources, one for sinks."""
