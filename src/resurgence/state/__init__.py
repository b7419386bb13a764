"""Checkpoints: records, paths, protocol, load plan, retention."""
