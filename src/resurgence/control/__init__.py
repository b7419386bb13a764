"""The control plane: job state machine, failure detector, supervisor, scheduler, metadata."""
