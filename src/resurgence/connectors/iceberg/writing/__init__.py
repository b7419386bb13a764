"""Iceberg tables as sinks."""
