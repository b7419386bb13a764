"""Queries into operators."""
