"""What came out of a Spark call, as one of our errors: the edge that knows the exceptions of
PySpark, Py4J, Arrow, object stores and the Python processes of tasks.

The classes and what a user can do about each: docs/errors.md. What Spark has only as text is told
apart by the words that it uses; values of the input may hold the same words, so failures that quote
values are recognised before, by their class and SQLSTATE.
"""

from __future__ import annotations

import builtins
import re
import time
import traceback
from collections.abc import Callable

import obstore.exceptions
import pyarrow as pa
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession

from resurgence.errors import (
    AccessDenied,
    ArrowFailed,
    ConnectionLost,
    DiskFull,
    ExecutorLost,
    ExpressionFailed,
    OutOfMemory,
    PythonCrashed,
    QueryRefused,
    ResultTooLarge,
    ResurgenceError,
    SparkGone,
    SparkJobCancelled,
    SparkKilled,
    StorageError,
    TaskFailed,
    carried,
)
from resurgence.exit_status import killed_from_outside

_DATA_STATES = ("22", "P0001")
"""SQLSTATEs of values that an expression cannot take, and of raise_error()."""
_OUT_OF_MEMORY_STATUS = 52
"""With it Spark ends a JVM that is out of memory."""
_TOLD_WITHIN_SECONDS = 2.0

_MORE_MEMORY = (
    "raise spark.driver.memory (on a cluster also spark.executor.memory), or lower"
    " pipeline.epoch_rows"
)
_KILLED = (
    "the system kills what takes too much memory: lower pipeline.epoch_rows, or give the machine"
    " more"
)
_DEFECT = "this should not happen: please report it with the worker's log"
_DENIED_HINT = "give this user the right to read and write there, then it goes on by itself"
_FULL_HINT = "make room on the disk, then it goes on by itself"

_DENIALS = (PermissionError, PermissionDeniedError, UnauthenticatedError)
_TRACEBACK = "Traceback (most recent call last)"
_FULL = re.compile(r"No space left on device|Disk quota exceeded|\b(os error|Errno) (28|122)\b")
_DENIED = re.compile(
    r"[Pp]ermission ?[Dd]enied|AccessDenied|lacked the necessary privileges|lacked valid"
    r" authentication|\b(os error|Errno) (1|13|30)\b"
)
_CRASH_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)$', re.M)
_OUR_CALL = "/engine/functions/user_call.py"
_BEFORE_JAVA = re.compile(
    r"\A(An error occurred while calling \S+\s*:?\s*)?"
    r"([\w.$]+: )?(Job aborted due to stage failure: )?"
    r"(Task \d+ in stage [\d.]+ failed \d+ times?, most recent failure: )?"
    r"(Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \([^)]*\): )?([\w.$]+(Exception|Error): )?"
)


def translate(error: Exception) -> ResurgenceError:
    """Our error for whatever came out of a Spark call, or of our own work around one."""
    if isinstance(error, ResurgenceError):
        return _sharpened(error)
    if _came_from_gateway(error):
        return gone(None)
    if isinstance(error, AnalysisException | ParseException):
        return QueryRefused(f"Spark refuses the query: {_first_line(_message(error) or '')}")
    text = _message(error)
    if text is None:
        return gone(None)
    own = carried(text)
    if own is not None:
        return _sharpened(own)
    if isinstance(error, PySparkException) and _sql_state(error).startswith(_DATA_STATES):
        return ExpressionFailed(
            _first_line(text),
            hint="the expression fails on a value of the input: mend either, or use try_cast,"
            " try_divide and the like",
        )
    if isinstance(error, PySparkException | Py4JError):
        return _of_task(text) if _TRACEBACK in text else _of_java(text)
    return _of_python(type(error), text)


def gone(exit_status: int | None) -> ResurgenceError:
    """Why the JVM is gone, by the exit status of its process; None if that is not known."""
    if exit_status == _OUT_OF_MEMORY_STATUS:
        return OutOfMemory("the JVM that runs Spark ran out of memory", hint=_MORE_MEMORY)
    signal = -exit_status if exit_status is not None and exit_status < 0 else None
    if killed_from_outside(exit_status):
        how = f"killed by signal {signal}" if signal else "told to end from outside"
        return SparkKilled(
            f"the JVM that runs Spark was {how}",
            hint="the job is recovered with a new worker; the system kills what takes too much"
            " memory: lower spark.driver.memory, or give the machine more",
        )
    how = f"crashed with signal {signal}" if signal else "is gone"
    return SparkGone(
        f"the JVM that runs Spark {how}", hint="the job is recovered with a new worker"
    )


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


def _came_from_gateway(error: Exception) -> bool:
    """A broken connection to the JVM, and not to a system of a connector."""
    if isinstance(error, Py4JError):
        # A call that is not answered at all ends in an error of no special class, and no cause.
        is_bare = type(error) is Py4JError and "Trace:" not in str(error)
        return is_bare or isinstance(error, Py4JNetworkError)
    return isinstance(error, ConnectionError | EOFError) and any(
        "/py4j/" in frame.filename for frame in traceback.extract_tb(error.__traceback__)
    )


def _sharpened(error: ResurgenceError) -> ResurgenceError:
    """Storage that is full or closed to us is told apart by the words of the store."""
    if type(error) is not StorageError:
        return error
    if _FULL.search(error.message):
        return DiskFull(error.message, hint=_FULL_HINT)
    if isinstance(error.__cause__, _DENIALS) or _DENIED.search(error.message):
        return AccessDenied(error.message, hint=_DENIED_HINT)
    return error


# -------------------------------------------------------------------- exceptions of Python


def _of_task(text: str) -> ResurgenceError:
    """For an exception that a Python process of a task told in a traceback."""
    lines = text[text.rindex(_TRACEBACK) :].splitlines()[1:]
    told = next((line for line in lines if line and line[0] not in " \t"), "unknown error")
    name, _, message = told.partition(": ")
    plain = name.rpartition(".")[2]
    for module in (builtins, pa.lib, obstore.exceptions):
        kind = getattr(module, plain, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            return _of_python(kind, message)
    return TaskFailed(told, hint=_DEFECT)


def _of_python(kind: type[Exception], text: str) -> ResurgenceError:
    """For an exception of Python, whether it was raised here or in a task."""
    message = f"{kind.__name__}: {_first_line(text)}" if text.strip() else kind.__name__
    if issubclass(kind, MemoryError):
        return OutOfMemory(f"Python ran out of memory: {message}", hint=_MORE_MEMORY)
    if issubclass(kind, pa.ArrowException):
        return ArrowFailed(message, hint=_arrow_hint(kind))
    if issubclass(kind, ConnectionError | TimeoutError):
        return ConnectionLost(message, hint="is the other system up? it will be tried again")
    if not issubclass(kind, OSError | BaseError):
        return TaskFailed(message, hint=_DEFECT)
    if _FULL.search(message):
        return DiskFull(message, hint=_FULL_HINT)
    if issubclass(kind, _DENIALS) or _DENIED.search(message):
        return AccessDenied(message, hint=_DENIED_HINT)
    return StorageError(message, hint="it will be tried again")


def _arrow_hint(kind: type[Exception]) -> str:
    if issubclass(kind, pa.ArrowCapacityError):
        return "values are too large for one batch: lower pipeline.epoch_rows"
    return _DEFECT


# -------------------------------------------------------------------- what Spark has as text


def _of_java(text: str) -> ResurgenceError:
    """For a failure of the JVM, by the words of its text."""
    for pattern, made in _JAVA:
        if pattern.search(text):
            return made(text)
    return TaskFailed(_java_line(text), hint="the worker's log has more")


def _out_of_memory(text: str) -> ResurgenceError:
    return OutOfMemory(f"Spark ran out of memory: {_java_line(text)}", hint=_MORE_MEMORY)


def _python_crashed(text: str) -> ResurgenceError:
    what = text[text.index("Fatal Python error: ") :].splitlines()[0]
    what = what.removeprefix("Fatal Python error: ")
    frames: list[re.Match[str]] = []
    for frame in _CRASH_FRAME.finditer(text):
        if frame["file"].endswith(_OUR_CALL):
            break
        frames.append(frame)
    else:
        return PythonCrashed(f"a Python process of a task crashed: {what}", hint=_DEFECT)
    lines = [f'  File "{each["file"]}", line {each["line"]}, in {each["name"]}' for each in frames]
    return PythonCrashed(
        f"a Python process crashed in function {frames[-1]['name']}: {what}",
        hint="a library that the function calls has a defect; it is tried again, a few times",
        traceback="\n".join(["Traceback (most recent call last):", *reversed(lines), what]),
    )


_JAVA: tuple[tuple[re.Pattern[str], Callable[[str], ResurgenceError]], ...] = (
    (
        re.compile(r"\[SCALAR_SUBQUERY_TOO_MANY_ROWS\]"),
        lambda _: ExpressionFailed(
            "a scalar subquery returned more than one row",
            hint="add a condition that leaves one row, or select an aggregate such as max()",
        ),
    ),
    (
        re.compile(
            r"java\.lang\.OutOfMemoryError|UNABLE_TO_ACQUIRE_MEMORY|SparkOutOfMemoryError"
            r"|exited with code 52\b"
        ),
        _out_of_memory,
    ),
    (re.compile(r"Fatal Python error: "), _python_crashed),
    (
        re.compile(r"Python worker exited unexpectedly"),
        lambda _: OutOfMemory(
            "a Python process of a task was killed, most likely for want of memory", hint=_KILLED
        ),
    ),
    (_FULL, lambda text: DiskFull(_java_line(text), hint=_FULL_HINT)),
    (_DENIED, lambda text: AccessDenied(_java_line(text), hint=_DENIED_HINT)),
    (
        re.compile(r"ExecutorLostFailure|FetchFailed|Executor heartbeat timed out"),
        lambda text: ExecutorLost(
            _java_line(text), hint="is a machine of the cluster down? it will be tried again"
        ),
    ),
    (
        # The last is what a call meets when Spark is taken down under it.
        re.compile(
            r"SparkContext was shut ?down|stopped SparkContext|RejectedExecutionException"
            r'|the return value of "org\.apache\.spark\.SparkContext\.\w+\(\)" is null'
        ),
        lambda _: gone(None),
    ),
    (
        re.compile(r"SPARK_JOB_CANCELLED"),
        lambda text: SparkJobCancelled(
            _java_line(text), hint="someone cancelled it from outside; it will be tried again"
        ),
    ),
    (
        re.compile(r"bigger than spark\.driver\.maxResultSize"),
        lambda text: ResultTooLarge(
            _java_line(text), hint="raise spark.driver.maxResultSize, or lower pipeline.epoch_rows"
        ),
    ),
)
"""Which words mean what. The first that is found counts: what follows from it comes later."""


def _java_line(text: str) -> str:
    """What a text of the JVM says, without the names of calls, stages and classes before it."""
    plain = _BEFORE_JAVA.sub("", text.strip())
    return _first_line(plain)


def _sql_state(error: PySparkException) -> str:
    try:
        return error.getSqlState() or ""
    except Exception:
        return ""


def _message(error: Exception) -> str | None:
    """The exception's text; None if it is the JVM's to tell, and that is gone."""
    try:
        told = error.getMessage() if isinstance(error, PySparkException) else None
        return told or str(error)
    except (Py4JError, OSError, EOFError):
        return None


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "unknown error")
