"""Epochs on Spark."""
