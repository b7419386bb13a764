"""Compilation of SQL queries into operators."""
