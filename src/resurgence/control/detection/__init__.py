"""Failure detection: heartbeats, task failures."""
