"""Functions: which exist, how they are written in Spark SQL, which are refused."""
