"""Job definitions: the SQL, functions and settings of a job, and the checks made on them."""
