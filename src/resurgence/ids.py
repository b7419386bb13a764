"""Names of things: epochs, generations, operators, jobs, workers."""

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
JobIdentity = NewType("JobIdentity", str)
"""Made once per job and stored with its state. Sinks key what they commit by it; a name can be
used again, this not.
"""

NO_EPOCH = Epoch(0)
"""The parent of the first epoch."""
NO_GENERATION = Generation(0)
"""Of a job that was never started, and of a worker that has no job."""

_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def job_name(text: str) -> JobName:
    """A job's name, which is also its folder in the state store."""
    if not _JOB_NAME.fullmatch(text):
        raise ConfigError(
            f"'{text}' cannot be a job name",
            hint="Use letters, digits, '_', '-' and '.', beginning with a letter or digit; --name sets it.",
        )
    return JobName(text)


def new_identity() -> JobIdentity:
    """A fresh identity, for a job that has no state yet."""
    return JobIdentity(uuid.uuid4().hex[:12])
