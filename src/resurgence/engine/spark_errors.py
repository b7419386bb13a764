"""What Spark threw, as one of our errors: the edge that knows PySpark's, Py4J's and Python
workers' exceptions.
"""

from __future__ import annotations

import re
import time

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession

from resurgence import errors
from resurgence.errors import DamagedState, ResurgenceError, TaskFailed, UserError

_OWN = re.compile(r"resurgence\.errors\.(\w+): (.+)")
_STATE_FILE = re.compile(r"state file (\S+\.parquet)")
_DATA_STATES = ("22", "P0001")
"""SQLSTATEs of values that an expression cannot take, and of raise_error()."""
_TRACEBACK = "Traceback (most recent call last)"
_TOLD_WITHIN_SECONDS = 2.0


class SparkGone(ResurgenceError):
    """The JVM under the driver is gone."""

    code = "spark.gone"


def translate(error: Exception) -> ResurgenceError:
    """Our error for whatever came out of a Spark call."""
    if isinstance(error, ResurgenceError):
        return error
    if isinstance(error, Py4JNetworkError | ConnectionError | EOFError):
        return SparkGone(
            "the JVM that runs Spark is gone", hint="the job is recovered with a new worker"
        )
    if isinstance(error, AnalysisException | ParseException):
        return UserError(f"Spark refuses the query: {_first_line(_message(error))}")
    text = str(error)
    own = _OWN.search(text)
    if own is not None:
        return _rebuilt(own[1], own[2].strip())
    if isinstance(error, PySparkException):
        if _sql_state(error).startswith(_DATA_STATES):
            return UserError(
                _first_line(_message(error)), hint="the expression fails on a value of the input"
            )
        return TaskFailed(_first_line(_message(error)))
    if isinstance(error, Py4JError):
        return TaskFailed(_first_line(text))
    return TaskFailed(f"{type(error).__name__}: {_first_line(text)}")


def failed_subtask(spark: SparkSession) -> int | None:
    """The index of the task that the newest Spark job failed in, if a task was what failed. The
    exception does not say it; Spark's own records do, a moment later.
    """
    try:
        store = spark.sparkContext._jsc.sc().statusStore()
        deadline = time.monotonic() + _TOLD_WITHIN_SECONDS
        while (job := store.jobsList(None).apply(0)).status().toString() == "RUNNING":
            if time.monotonic() > deadline:
                return None
            time.sleep(0.02)
        stages = [job.stageIds().apply(index) for index in range(job.stageIds().size())]
        for stage in (store.lastStageAttempt(each) for each in stages):
            if stage.status().toString() == "FAILED":
                tasks = store.taskList(stage.stageId(), stage.attemptId(), stage.numTasks() * 4)
                for task in (tasks.apply(index) for index in range(tasks.size())):
                    if task.status() == "FAILED":
                        return int(task.index())
    except (Py4JError, OSError):
        # No job yet, a stage that was never begun, or no JVM any more.
        return None
    return None


def _rebuilt(name: str, message: str) -> ResurgenceError:
    """One of our own errors, raised inside a Python worker and carried here as text."""
    if name == "DamagedState":
        path = _STATE_FILE.search(message)
        return DamagedState(message, path=path[1] if path else "")
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, ResurgenceError):
        try:
            return kind(message)
        except TypeError:
            pass
    return TaskFailed(message)


def _sql_state(error: PySparkException) -> str:
    try:
        return error.getSqlState() or ""
    except Exception:
        return ""


def _message(error: PySparkException) -> str:
    # The JVM may be gone by the time the exception is asked for its text.
    try:
        return error.getMessage() or str(error)
    except Exception:
        return str(error)


def _first_line(text: str) -> str:
    lines = [line.rstrip() for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return "unknown error"
    traceback = [index for index, line in enumerate(lines) if _TRACEBACK in line]
    # A Python traceback says what happened after its frames; a Java message in its first line.
    if traceback:
        told = [line for line in lines[traceback[-1] + 1 :] if line[0] not in " \t"]
        return told[0].strip() if told else lines[-1].strip()
    return lines[0].strip()
