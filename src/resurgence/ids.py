"""Identifier types: epochs, generations, operators, jobs, workers, controllers."""

from __future__ import annotations

import re
import uuid
from typing import NewType

from resurgence.errors import ConfigError

Epoch = NewType("Epoch", int)
Generation = NewType("Generation", int)
OperatorId = NewType("OperatorId", str)
JobName = NewType("JobName", str)
WorkerId = NewType("WorkerId", str)
ControllerId = NewType("ControllerId", str)
"""One membership of a controller in its service. A controller that lost its lease gets a new one."""
JobIdentity = NewType("JobIdentity", str)
"""Created once per job and stored with its state. Sinks key their commits by it because, unlike a
name, it is never reused.
"""

NO_EPOCH = Epoch(0)
"""The parent of the first epoch."""
NO_GENERATION = Generation(0)
"""The generation of a job that was never started, and of a worker that has no job."""

_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def job_name(text: str) -> JobName:
    """Validate a job name, which is also the job's folder in the state store."""
    if not _JOB_NAME.fullmatch(text):
        raise ConfigError(
            f"invalid job name '{text}'",
            hint="Set --name to letters, digits, '_', '-', '.', starting with a letter or digit.",
        )
    return JobName(text)


def new_identity() -> JobIdentity:
    """Generate an identity for a job that has no state yet."""
    return JobIdentity(uuid.uuid4().hex[:12])
