"""Lookup tables: tables at rest that rows are joined with."""
