"""Catalogs of Iceberg tables, and where their files are."""
