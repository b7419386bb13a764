"""State tables: rows of operators in Parquet files."""
