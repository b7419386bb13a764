"""Operators that read or emit changelog streams: updating queries and changelog normalisation."""
