"""Declarations of a pipeline: tables, their columns, and the relations that queries read."""
