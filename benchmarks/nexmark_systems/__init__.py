"""The systems that nexmark.py compares: their queries, their input, their runs and their answers."""
