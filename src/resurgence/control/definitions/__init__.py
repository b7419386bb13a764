"""Job definitions: the SQL, functions and settings of a job, and their validation."""
