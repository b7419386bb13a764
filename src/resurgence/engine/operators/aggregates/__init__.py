"""Aggregates as mergeable partial aggregates."""
