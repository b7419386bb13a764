"""Evaluates the failure detector; pure. A failure that a worker reported takes precedence over one
observed from outside.
"""

from __future__ import annotations

from datetime import datetime

from resurgence.control.detection.failure import (
    Failure,
    exit_failure,
    stall_failure,
    task_failure,
    timeout_failure,
)
from resurgence.control.detection.running_job_model import RunningJobModel


def detect(model: RunningJobModel, now: datetime) -> Failure | None:
    """Return the failure of a running job, if there is one; `now` is the detector's time."""
    if (event := model.task_failed()) is not None:
        return task_failure(event)
    if (status := model.worker_exited()) is not None:
        return exit_failure(status, model.sealed_epoch)
    if (status := model.worker_timedout(now)) is not None:
        return timeout_failure(status, model.sealed_epoch)
    if (stalled := model.progress_stalled(now)) is not None:
        return stall_failure(stalled)
    return None
