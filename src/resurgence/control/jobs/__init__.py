"""The job state machine and the supervisor that runs it."""
