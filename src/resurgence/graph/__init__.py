"""The compiled dataflow and how it is shown."""
