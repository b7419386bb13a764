"""The process around a Spark driver."""
