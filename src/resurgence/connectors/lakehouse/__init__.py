"""What sinks of lakehouse tables share: Spark's tasks write data files, the driver commits them."""
