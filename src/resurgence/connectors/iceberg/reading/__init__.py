"""Iceberg tables as sources and lookup tables."""
