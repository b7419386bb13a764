"""What is wanted of a job: by its user, and by its controller."""

from __future__ import annotations

from resurgence.control.jobs.job_record import DesiredConfig, StopMode, stopped
from resurgence.control.jobs.wake_up import WakeUp


class JobRequests:
    """The newest requests. Whoever changes them wakes the job's state."""

    def __init__(self, desired: DesiredConfig, wake_up: WakeUp) -> None:
        self.desired = desired
        self._wake_up = wake_up
        self._closing: StopMode | None = None

    def want(self, desired: DesiredConfig) -> None:
        """What the user wants has changed."""
        self.desired = desired
        self._wake_up.notify()

    def request_stop(self, mode: StopMode) -> None:
        """Ask for a stop. Once it is forced, it stays so."""
        self.want(stopped(self.desired, mode))

    def close(self, mode: StopMode) -> None:
        """The controller ends: stop, whatever is wanted of the job later."""
        self._closing = mode
        self._wake_up.notify()

    @property
    def stop(self) -> StopMode | None:
        """How to stop, if the job is not to run."""
        return self._closing or self.desired.stop

    @property
    def is_closing(self) -> bool:
        """The controller ends."""
        return self._closing is not None
