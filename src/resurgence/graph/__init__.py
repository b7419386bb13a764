"""The compiled dataflow and its textual description."""
