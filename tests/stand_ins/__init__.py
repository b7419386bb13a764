"""Stand-ins for workers: the real messages and the real checkpoints, without Spark and without rows."""
