"""Topics as sinks."""
