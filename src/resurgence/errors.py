"""The error hierarchy: one root, with a domain and a retry hint.

`ErrorDomain` states who can fix an error. `RetryHint` decides whether the job is recovered.
Foreign exceptions are translated into these at the edge that knows them, `from` the cause. The
message states what failed and where; the hint states what to do about it.

An error raised inside a Spark task reaches the driver only as the text of its traceback. Therefore
every traceback of a ResurgenceError ends with a line of its details, from which
`error_in_traceback` rebuilds the complete error.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

_DETAILS = "resurgence.error "
_CARRIED = re.compile(
    r"^(?P<module>resurgence[\w.]*)\.(?P<kind>\w+): (?P<message>(?:(?!^resurgence[\w.]*: ).)*?)\n"
    rf"{re.escape(_DETAILS)}(?P<details>{{[^\n]*}})",
    re.DOTALL | re.MULTILINE,
)


class ErrorDomain(StrEnum):
    """Who can fix it: the author of the pipeline, an external system, or this project."""

    USER = "user"
    EXTERNAL = "external"
    INTERNAL = "internal"


class RetryHint(StrEnum):
    """Whether a retry can succeed."""

    NO_RETRY = "no_retry"
    WITH_BACKOFF = "with_backoff"


class ResurgenceError(Exception):
    """Root of all errors that this project raises deliberately."""

    code: ClassVar[str] = "internal"
    domain: ErrorDomain = ErrorDomain.INTERNAL
    retry_hint: RetryHint = RetryHint.WITH_BACKOFF
    depends_on_data: ClassVar[bool] = False
    """Some rows of the input may cause it, so that an epoch without them succeeds."""

    def __init__(
        self, message: str, *, hint: str = "", position: str = "", traceback: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.position = position
        """Where in the input: a table with a file and line, or a range of offsets."""
        self.traceback = traceback
        """The frames of the user's own code, if that code failed."""

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        details = {name: each for name, each in vars(self).items() if name != "message"}
        return [_DETAILS + json.dumps(details, default=str)]


class UserError(ResurgenceError):
    """The pipeline, its settings or its data are wrong; a retry fails in the same way."""

    code = "user"
    domain = ErrorDomain.USER
    retry_hint = RetryHint.NO_RETRY


class ConfigError(UserError):
    """A setting or a flag is invalid."""

    code = "config"


class SqlError(UserError):
    """The SQL text is invalid at a known line and column."""

    code = "sql"

    def __init__(self, message: str, *, line: int, column: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.line = line
        self.column = column


class QueryRefused(UserError):
    """Spark rejected the query."""

    code = "query"


class ExpressionFailed(UserError):
    """An expression of the query failed on a value of the input."""

    code = "expression"
    depends_on_data = True


class FunctionFailed(UserError):
    """A Python function of the user raised an exception."""

    code = "udf"
    depends_on_data = True


class WrongResult(FunctionFailed):
    """A Python function of the user returned a value that is not of its annotated type."""

    code = "udf.result"


class FunctionTimedOut(ResurgenceError):
    """An async function of the user timed out: the service that it calls is slow or unreachable."""

    code = "udf.timeout"
    domain = ErrorDomain.EXTERNAL


class BadRecord(UserError):
    """A record of the input cannot be parsed."""

    code = "bad_record"


class TooManyDeadLetters(UserError):
    """An epoch has more dead letters than allowed."""

    code = "dead_letters"


class StorageError(ResurgenceError):
    """The object store failed, or refused a request."""

    code = "storage"
    domain = ErrorDomain.EXTERNAL


class AccessDenied(StorageError):
    """Permission to read or write a file or an object was denied."""

    code = "storage.denied"


class DiskFull(StorageError):
    """A disk is full, or a disk quota is exhausted."""

    code = "storage.full"


class ObjectMissing(StorageError):
    """A required object does not exist."""

    code = "storage.missing"


class SourceError(ResurgenceError):
    """A source cannot be read."""

    code = "source"
    domain = ErrorDomain.EXTERNAL


class SourceRangeGone(SourceError):
    """A source no longer holds input that a sealed epoch recorded."""

    code = "source.range_gone"
    retry_hint = RetryHint.NO_RETRY


class SinkError(ResurgenceError):
    """A sink cannot stage or commit."""

    code = "sink"
    domain = ErrorDomain.EXTERNAL


class SinkFileMissing(SinkError):
    """A file of the table that a sink updates does not exist."""

    code = "sink.file_missing"


class MessageRefused(UserError):
    """A sink refuses a row: it is too large, or may not be written."""

    code = "sink.refused"
    depends_on_data = True


class SinkConflict(UserError):
    """A sink holds epochs that are not in the state, or are there with other input."""

    code = "sink.conflict"


class QueryStopped(UserError):
    """A query over state or dead letters took more than it may."""

    code = "state.query_stopped"


class RunsInATerminal(UserError):
    """The job is not of a service."""

    code = "job.in_terminal"


class DamagedState(ResurgenceError):
    """A state file, or a record of a checkpoint, does not match its digest."""

    code = "state.damaged"
    domain = ErrorDomain.EXTERNAL

    def __init__(self, message: str, *, path: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = path


class NewerFormat(UserError):
    """A stored record was written by a newer release."""

    code = "state.newer_format"

    def __init__(self, message: str, *, intact: bool, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.intact = intact
        """Its checksum matches, so the version number is not a flipped bit."""


class NoValidCheckpoint(ResurgenceError):
    """Checkpoints exist, but none of them is usable."""

    code = "state.no_valid_checkpoint"
    domain = ErrorDomain.EXTERNAL
    retry_hint = RetryHint.NO_RETRY


class IdentityMissing(UserError):
    """Checkpoints exist, but no record of the job that they belong to."""

    code = "state.identity_missing"


class IncompatibleState(UserError):
    """The stored state is incompatible with the pipeline."""

    code = "state.incompatible"


class JobHeld(UserError):
    """Another live process runs the job."""

    code = "job.held"

    def __init__(self, message: str, *, renewed_at: datetime, proven: bool, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.renewed_at = renewed_at
        self.proven = proven
        """The process is known to be alive; otherwise it is only not known to be dead."""


class Retired(ResurgenceError):
    """A newer generation owns the job; this one must stop without writing anything."""

    code = "retired"
    retry_hint = RetryHint.NO_RETRY


class ControllerUnreachable(ResurgenceError):
    """Another controller of the service does not answer."""

    code = "controller.unreachable"
    domain = ErrorDomain.EXTERNAL


class JobLost(ResurgenceError):
    """Another controller of the service owns the job; this one must let go of it."""

    code = "job.lost"
    retry_hint = RetryHint.NO_RETRY


class TakenOver(Retired):
    """Another process has claimed the job and runs it."""

    code = "retired.taken_over"
    domain = ErrorDomain.USER


class SealLost(Retired):
    """An older generation sealed the epoch first; this one must restart from that checkpoint."""

    code = "retired.seal_lost"
    retry_hint = RetryHint.WITH_BACKOFF


class TaskFailed(ResurgenceError):
    """A Spark task, or the driver's part of one, failed after all retries."""

    code = "task"


class ArrowFailed(TaskFailed):
    """Arrow rejected data outside the user's functions."""

    code = "arrow"


class OutOfMemory(ResurgenceError):
    """The JVM or a Python process of a task ran out of memory.

    Not external: running out of memory three times at the same epoch is a crash loop.
    """

    code = "memory"


class PythonCrashed(ResurgenceError):
    """A Python process of a task crashed in native code."""

    code = "python.crashed"


class SparkGone(ResurgenceError):
    """The JVM of the driver has exited."""

    code = "spark.gone"


class SparkKilled(SparkGone):
    """The JVM of the driver was killed from outside."""

    code = "spark.killed"


class ExecutorLost(ResurgenceError):
    """Spark lost executors, or their output, more often than it retries."""

    code = "spark.executor_lost"
    domain = ErrorDomain.EXTERNAL


class ClusterUnavailable(ResurgenceError):
    """The Spark master is unreachable, grants no executors, or removed the application."""

    code = "spark.unavailable"
    domain = ErrorDomain.EXTERNAL


class ExecutorsUnfit(UserError):
    """The executors lack what our tasks need: a Python of the same version, or a package."""

    code = "spark.executors"


class JarsUnavailable(ResurgenceError):
    """The jars of a connector cannot be downloaded. That has been retried: a machine without access
    should say so at once.
    """

    code = "jars.unavailable"
    domain = ErrorDomain.EXTERNAL
    retry_hint = RetryHint.NO_RETRY


class JarsInvalid(UserError):
    """The given directory of jars lacks one, or has one for another version of Spark."""

    code = "jars.invalid"


class SparkJobCancelled(ResurgenceError):
    """Someone cancelled the Spark job of an epoch."""

    code = "spark.cancelled"
    domain = ErrorDomain.EXTERNAL


class ResultTooLarge(UserError):
    """Tasks sent more data to the driver than its configured limit."""

    code = "spark.result_too_large"


class ConnectionLost(ResurgenceError):
    """An external system is unreachable or does not respond."""

    code = "connection"
    domain = ErrorDomain.EXTERNAL


class InjectedFault(ResurgenceError):
    """Raised deliberately at a fault point."""

    code = "fault"


def error_in_traceback(text: str) -> ResurgenceError | None:
    """Rebuild the ResurgenceError that the text of a traceback ends with: its class, message and
    details. Return None if it ends with none.
    """
    for found in reversed(list(_CARRIED.finditer(text))):
        kind = getattr(sys.modules.get(found["module"]), found["kind"], None)
        if isinstance(kind, type) and issubclass(kind, ResurgenceError):
            error = kind.__new__(kind, found["message"])
            vars(error).update(json.loads(found["details"]), message=found["message"])
            return error
    return None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest known name, or with all of them if they are few."""
    names = sorted(set(known))
    close = difflib.get_close_matches(name.lower(), [each.lower() for each in names], n=1)
    if close:
        exact = next(each for each in names if each.lower() == close[0])
        return f"Perhaps you meant '{exact}'."
    if 0 < len(names) <= 12:
        return f"Use one of: {', '.join(names)}."
    return ""
