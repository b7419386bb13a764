"""Checkpoints as people see them: what is kept, verified, counted, lost by an edit."""
