"""The desired state of a job: requests of its user, and the shutdown of its controller."""

from __future__ import annotations

from resurgence.control.jobs.job_record import DesiredConfig, StopMode, stopped
from resurgence.control.jobs.wake_up import WakeUp


class JobRequests:
    """The newest requests. Every change wakes the job's state."""

    def __init__(self, desired: DesiredConfig, wake_up: WakeUp) -> None:
        self.desired = desired
        self._wake_up = wake_up
        self._closing: StopMode | None = None

    def set_desired(self, desired: DesiredConfig) -> None:
        """Replace the desired config."""
        self.desired = desired
        self._wake_up.notify()

    def request_stop(self, mode: StopMode) -> None:
        """Request a stop. A forced stop stays forced."""
        self.set_desired(stopped(self.desired, mode))

    def close(self, mode: StopMode) -> None:
        """Stop because the controller shuts down, whatever is requested of the job later."""
        self._closing = mode
        self._wake_up.notify()

    @property
    def stop(self) -> StopMode | None:
        """How to stop; None if the job should run."""
        return self._closing or self.desired.stop

    @property
    def is_closing(self) -> bool:
        """Whether the controller is shutting down."""
        return self._closing is not None
