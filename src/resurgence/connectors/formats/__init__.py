"""Formats: how a record is read and written."""
