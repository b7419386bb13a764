"""User-defined functions, and functions that read the clock."""
