"""What a Spark job has observed of the rows that went by."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Observation


def observed(observation: Observation) -> dict[str, Any]:
    """Wait for the job, and tell. Nothing, if Spark knew that it need not read these rows and left
    them out of its plan.
    """
    try:
        return observation.get
    except Py4JJavaError:
        return {}
