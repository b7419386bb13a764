"""The one root of every error, and the words for blame and retry.

`ErrorDomain` is blame, for people. `RetryHint` decides whether the job is recovered. Foreign
exceptions are translated into these at the edge that knows them, `from` the cause. The message says
what failed and where; the hint says what to do about it.

An error that is raised inside a Spark task arrives as the text of its traceback, and nothing else.
So every traceback of one of our errors ends with a line of its details; `carried` reads the error
back from such a text, whole.
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
    """Who can mend it: the author of the pipeline, the world around it, or us."""

    USER = "user"
    EXTERNAL = "external"
    INTERNAL = "internal"


class RetryHint(StrEnum):
    """Whether trying again can help."""

    NO_RETRY = "no_retry"
    WITH_BACKOFF = "with_backoff"


class ResurgenceError(Exception):
    """Root of all errors that this project raises on purpose."""

    code: ClassVar[str] = "internal"
    domain: ErrorDomain = ErrorDomain.INTERNAL
    retry_hint: RetryHint = RetryHint.WITH_BACKOFF

    def __init__(
        self, message: str, *, hint: str = "", position: str = "", traceback: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.position = position
        """Where in the input: a table with a file and line, or a range of offsets."""
        self.traceback = traceback
        """The frames of the user's own code, where that is what failed."""

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        details = {name: each for name, each in vars(self).items() if name != "message"}
        return [_DETAILS + json.dumps(details, default=str)]


class UserError(ResurgenceError):
    """The pipeline, its settings or its data are wrong; trying again gives the same."""

    code = "user"
    domain = ErrorDomain.USER
    retry_hint = RetryHint.NO_RETRY


class ConfigError(UserError):
    """A setting or a flag is wrong."""

    code = "config"


class SqlError(UserError):
    """The SQL text is wrong at a known place."""

    code = "sql"

    def __init__(self, message: str, *, line: int, column: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.line = line
        self.column = column


class QueryRefused(UserError):
    """Spark does not accept the query."""

    code = "query"


class ExpressionFailed(UserError):
    """An expression of the query cannot take a value of the input."""

    code = "expression"


class FunctionFailed(UserError):
    """A Python function of the user raised."""

    code = "udf"


class WrongResult(FunctionFailed):
    """A Python function of the user returned a value that is not of its annotated type."""

    code = "udf.result"


class FunctionTimedOut(ResurgenceError):
    """An async function of the user gave no answer in time: what it asks may be slow, or away."""

    code = "udf.timeout"
    domain = ErrorDomain.EXTERNAL


class BadRecord(UserError):
    """A record of the input cannot be read."""

    code = "bad_record"


class StorageError(ResurgenceError):
    """The object store refused or failed."""

    code = "storage"
    domain = ErrorDomain.EXTERNAL


class AccessDenied(StorageError):
    """A file or an object may not be read or written."""

    code = "storage.denied"


class DiskFull(StorageError):
    """A disk, or a share of it, is used up."""

    code = "storage.full"


class ObjectMissing(StorageError):
    """An object that should be there is not."""

    code = "storage.missing"


class SourceError(ResurgenceError):
    """A source could not be read."""

    code = "source"
    domain = ErrorDomain.EXTERNAL


class SourceRangeGone(SourceError):
    """A source no longer holds input that a sealed epoch recorded."""

    code = "source.range_gone"
    retry_hint = RetryHint.NO_RETRY


class SinkError(ResurgenceError):
    """A sink could not stage or commit."""

    code = "sink"
    domain = ErrorDomain.EXTERNAL


class SinkConflict(UserError):
    """A sink holds epochs that the state does not know, or knows over other input."""

    code = "sink.conflict"


class DamagedState(ResurgenceError):
    """A state file, or a record of a checkpoint, is not what its digest says."""

    code = "state.damaged"
    domain = ErrorDomain.EXTERNAL

    def __init__(self, message: str, *, path: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = path


class NewerFormat(UserError):
    """Something stored was written by a newer release."""

    code = "state.newer_format"

    def __init__(self, message: str, *, intact: bool, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.intact = intact
        """Its checksum fits: it is what it says, and not a flipped bit."""


class NoValidCheckpoint(ResurgenceError):
    """Checkpoints exist and none of them can be used."""

    code = "state.no_valid_checkpoint"
    domain = ErrorDomain.EXTERNAL
    retry_hint = RetryHint.NO_RETRY


class IdentityMissing(UserError):
    """There are checkpoints, but nothing says whose they are."""

    code = "state.identity_missing"


class IncompatibleState(UserError):
    """The stored state does not fit the pipeline."""

    code = "state.incompatible"


class JobHeld(UserError):
    """A live process elsewhere runs the job."""

    code = "job.held"

    def __init__(self, message: str, *, renewed_at: datetime, proven: bool, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.renewed_at = renewed_at
        self.proven = proven
        """It is known to live, and not only not known to be dead."""


class Retired(ResurgenceError):
    """A newer generation owns the job; this one must stop and touch nothing."""

    code = "retired"
    retry_hint = RetryHint.NO_RETRY


class TakenOver(Retired):
    """Another process claimed the job, and runs it now."""

    code = "retired.taken_over"
    domain = ErrorDomain.USER


class SealLost(Retired):
    """An older generation sealed the epoch at the last moment; this one must begin again from
    there.
    """

    code = "retired.seal_lost"
    retry_hint = RetryHint.WITH_BACKOFF


class TaskFailed(ResurgenceError):
    """A Spark task, or the driver's part of one, failed for good."""

    code = "task"


class ArrowFailed(TaskFailed):
    """Arrow refused data outside the user's functions."""

    code = "arrow"


class OutOfMemory(ResurgenceError):
    """The JVM or a Python process of a task needs more memory than there is.

    Not the world's fault: what runs out three times at the same epoch is a crash loop.
    """

    code = "memory"


class PythonCrashed(ResurgenceError):
    """A Python process of a task died inside native code."""

    code = "python.crashed"


class SparkGone(ResurgenceError):
    """The JVM under the driver is gone."""

    code = "spark.gone"


class SparkKilled(SparkGone):
    """The JVM under the driver was killed from outside."""

    code = "spark.killed"


class ExecutorLost(ResurgenceError):
    """Spark lost an executor, or output of one, more often than it tries again."""

    code = "spark.executor_lost"
    domain = ErrorDomain.EXTERNAL


class SparkJobCancelled(ResurgenceError):
    """Someone cancelled the Spark job under an epoch."""

    code = "spark.cancelled"
    domain = ErrorDomain.EXTERNAL


class ResultTooLarge(UserError):
    """Tasks sent more to the driver than it is set to take."""

    code = "spark.result_too_large"


class ConnectionLost(ResurgenceError):
    """A system around us cannot be reached, or does not answer."""

    code = "connection"
    domain = ErrorDomain.EXTERNAL


class InjectedFault(ResurgenceError):
    """Raised on purpose at a fault point."""

    code = "fault"


def carried(text: str) -> ResurgenceError | None:
    """Our error that the text of a traceback ends with, if it does: the same class, message and
    details.
    """
    for found in reversed(list(_CARRIED.finditer(text))):
        kind = getattr(sys.modules.get(found["module"]), found["kind"], None)
        if isinstance(kind, type) and issubclass(kind, ResurgenceError):
            error = kind.__new__(kind, found["message"])
            vars(error).update(json.loads(found["details"]), message=found["message"])
            return error
    return None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint naming the nearest known word, or all of them when they are few."""
    names = sorted(set(known))
    close = difflib.get_close_matches(name.lower(), [each.lower() for each in names], n=1)
    if close:
        exact = next(each for each in names if each.lower() == close[0])
        return f"did you mean '{exact}'?"
    if 0 < len(names) <= 12:
        return "known: " + ", ".join(names)
    return ""
