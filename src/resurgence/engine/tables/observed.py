"""Values that a Spark job has observed."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Observation


def observed(observation: Observation) -> dict[str, Any]:
    """Wait for the job and return the observed values. Empty if Spark removed these rows from its
    plan because it did not need them.
    """
    try:
        return observation.get
    except Py4JJavaError:
        return {}
