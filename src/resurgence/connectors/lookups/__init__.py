"""Lookup tables: external tables that rows are joined with."""
