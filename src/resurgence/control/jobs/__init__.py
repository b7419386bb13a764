"""The job state machine and what carries it out."""
