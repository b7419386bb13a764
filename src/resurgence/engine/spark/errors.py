"""Translates what a Spark call raises into our errors. Knows the exceptions of PySpark, Py4J,
Arrow, object stores and the Python processes of tasks.

docs/errors.md lists the error classes and what a user can do about each. Failures that Spark
reports only as text are classified by patterns. Values of the input may contain the same words, so
failures that quote values are classified first, by exception class and SQLSTATE.
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
    ClusterUnavailable,
    ConnectionLost,
    DiskFull,
    ExecutorLost,
    ExecutorsUnfit,
    ExpressionFailed,
    OutOfMemory,
    PythonCrashed,
    QueryRefused,
    ResultTooLarge,
    ResurgenceError,
    SourceError,
    SparkGone,
    SparkJobCancelled,
    SparkKilled,
    StorageError,
    TaskFailed,
    UserError,
    error_in_traceback,
)
from resurgence.exit_status import killed_from_outside

_DATA_STATES = ("22", "P0001")
"""SQLSTATEs of invalid values in an expression, and of raise_error()."""
_OUT_OF_MEMORY_STATUS = 52
"""The exit status of a JVM that Spark ends because it is out of memory."""
_STATUS_WITHIN_SECONDS = 2.0

_MORE_MEMORY = (
    "Raise spark.driver.memory (on a cluster also spark.executor.memory), or lower"
    " pipeline.epoch_rows."
)
_KILLED = (
    "Lower pipeline.epoch_rows, or use a machine with more memory: the system kills processes when"
    " memory runs out."
)
_DEFECT = "Report this defect with the worker's log."
_DENIED_HINT = "Grant this user read and write access. The job will retry."
_FULL_HINT = "Free space on the disk. The job will retry."
_NEW_WORKER = "Check the worker's log if this repeats. The job will restart with a new worker."

_DENIALS = (PermissionError, PermissionDeniedError, UnauthenticatedError)
_MISSING_MODULE = re.compile(r"No module named '(?P<module>[^'.]+)")
_NO_PACKAGE = re.compile(r"\[PACKAGE_NOT_INSTALLED\] (?P<package>\w+)")
_OTHER_PYTHON = re.compile(
    r"\[PYTHON_VERSION_MISMATCH\].*?: (?P<executor>[\d.]+\d).*?: (?P<driver>[\d.]+\d)"
)
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
    """Return our error for any exception of a Spark call, or of our own code around one."""
    if isinstance(error, ResurgenceError):
        return _refined(error)
    if _is_gateway_failure(error):
        return gone(None)
    if isinstance(error, AnalysisException | ParseException):
        return QueryRefused(f"Spark rejected the query: {_first_line(_message(error) or '')}")
    text = _message(error)
    if text is None:
        return gone(None)
    own = error_in_traceback(text)
    if own is not None:
        return _refined(own)
    if isinstance(error, PySparkException) and _sql_state(error).startswith(_DATA_STATES):
        return ExpressionFailed(
            _first_line(text),
            hint="Fix the expression or the value of the input, or use try_cast, try_divide and the"
            " like.",
        )
    if isinstance(error, PySparkException | Py4JError):
        return _from_task(text) if _TRACEBACK in text else _from_java(text)
    return _from_python(type(error), text)


def gone(exit_status: int | None) -> ResurgenceError:
    """Return the error for a JVM that ended; `exit_status` is None if it is not known."""
    if exit_status == _OUT_OF_MEMORY_STATUS:
        return OutOfMemory("the JVM that runs Spark ran out of memory", hint=_MORE_MEMORY)
    signal = -exit_status if exit_status is not None and exit_status < 0 else None
    if killed_from_outside(exit_status):
        how = f"killed by signal {signal}" if signal else "terminated from outside"
        return SparkKilled(
            f"the JVM that runs Spark was {how}",
            hint="Lower spark.driver.memory, or use a machine with more memory, if the system ran"
            " out of memory. The job will restart with a new worker.",
        )
    how = f"crashed with signal {signal}" if signal else "ended unexpectedly"
    return SparkGone(f"the JVM that runs Spark {how}", hint=_NEW_WORKER)


def failed_subtask(spark: SparkSession) -> int | None:
    """Return the index of the task that the newest Spark job failed in, if a task failed. The
    exception does not contain it. Spark's status store does, a moment later.
    """
    try:
        store = spark.sparkContext._jsc.sc().statusStore()
        deadline = time.monotonic() + _STATUS_WITHIN_SECONDS
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
        # No job yet, a stage that never started, or the JVM has ended.
        return None
    return None


def _is_gateway_failure(error: Exception) -> bool:
    """Whether the connection to the JVM broke, and not one to a connector's system."""
    if isinstance(error, Py4JError):
        # A call without a response ends in a plain Py4JError without a cause.
        is_bare = type(error) is Py4JError and "Trace:" not in str(error)
        return is_bare or isinstance(error, Py4JNetworkError)
    return isinstance(error, ConnectionError | EOFError) and any(
        "/py4j/" in frame.filename for frame in traceback.extract_tb(error.__traceback__)
    )


def _refined(error: ResurgenceError) -> ResurgenceError:
    """Return a more specific error for full storage and denied access, by the store's message."""
    if type(error) is not StorageError:
        return error
    if _FULL.search(error.message):
        return DiskFull(error.message, hint=_FULL_HINT)
    if isinstance(error.__cause__, _DENIALS) or _DENIED.search(error.message):
        return AccessDenied(error.message, hint=_DENIED_HINT)
    return error


# -------------------------------------------------------------------- exceptions of Python


def _from_task(text: str) -> ResurgenceError:
    """Translate an exception that a Python process of a task reported as a traceback."""
    lines = text[text.rindex(_TRACEBACK) :].splitlines()[1:]
    reported = next((line for line in lines if line and line[0] not in " \t"), "unknown error")
    name, _, message = reported.partition(": ")
    plain = name.rpartition(".")[2]
    unfit = _unfit(plain, message)
    if unfit is not None:
        return unfit
    for module in (builtins, pa.lib, obstore.exceptions):
        kind = getattr(module, plain, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            return _from_python(kind, message)
    return TaskFailed(reported, hint=_DEFECT)


def _unfit(name: str, message: str) -> ExecutorsUnfit | None:
    """Return the error for a Python process of a task that cannot run our code at all."""
    if other := _OTHER_PYTHON.search(message):
        return ExecutorsUnfit(
            f"the executors run Python {other['executor']}, but the driver runs {other['driver']}",
            hint=f"Set spark.pyspark.python to a Python {other['driver']} of the executors.",
        )
    missing = _MISSING_MODULE.search(message) if name == "ModuleNotFoundError" else None
    if missing or (missing := _NO_PACKAGE.search(message)):
        module = missing.group(1)
        return ExecutorsUnfit(
            f"the executors lack the Python package {module.lower()}",
            hint="Install it in the image of the executors, or set spark.pyspark.python to a Python"
            " that has it.",
        )
    return None


def _from_python(kind: type[Exception], text: str) -> ResurgenceError:
    """Translate a Python exception that was raised here or in a task."""
    message = f"{kind.__name__}: {_first_line(text)}" if text.strip() else kind.__name__
    if issubclass(kind, MemoryError):
        return OutOfMemory(f"Python ran out of memory: {message}", hint=_MORE_MEMORY)
    if issubclass(kind, pa.ArrowException):
        return ArrowFailed(message, hint=_arrow_hint(kind))
    if issubclass(kind, ConnectionError | TimeoutError):
        return ConnectionLost(
            message, hint="Check that the other system is running. The job will retry."
        )
    if not issubclass(kind, OSError | BaseError):
        return TaskFailed(message, hint=_DEFECT)
    if _FULL.search(message):
        return DiskFull(message, hint=_FULL_HINT)
    if issubclass(kind, _DENIALS) or _DENIED.search(message):
        return AccessDenied(message, hint=_DENIED_HINT)
    return StorageError(message, hint="Check the storage. The job will retry.")


def _arrow_hint(kind: type[Exception]) -> str:
    if issubclass(kind, pa.ArrowCapacityError):
        return "Lower pipeline.epoch_rows: values are too large for one batch."
    return _DEFECT


# -------------------------------------------------------------------- failures that are only text


def _from_java(text: str) -> ResurgenceError:
    """Translate a failure of the JVM, by patterns in its text."""
    for pattern, made in _JAVA:
        if pattern.search(text):
            return made(text)
    return TaskFailed(_java_line(text), hint="Check the worker's log for details.")


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
        hint="Check the native libraries that the function calls. The job will retry.",
        traceback="\n".join(["Traceback (most recent call last):", *reversed(lines), what]),
    )


def _no_python(text: str) -> ResurgenceError:
    found = _CANNOT_RUN.search(text)
    assert found is not None
    return ExecutorsUnfit(
        f"the executors cannot run {found['program']}: {found['reason'].strip()}",
        hint="Set spark.pyspark.python to the path of Python on the executors.",
    )


_CANNOT_RUN = re.compile(r'Cannot run program "(?P<program>[^"]+)"[^\n]*?error=\d+, (?P<reason>.*)')
_KAFKA = r"org\.apache\.kafka\.common\.errors\."
_JAVA: tuple[tuple[re.Pattern[str], Callable[[str], ResurgenceError]], ...] = (
    (
        re.compile(r"\[SCALAR_SUBQUERY_TOO_MANY_ROWS\]"),
        lambda _: ExpressionFailed(
            "a scalar subquery returned more than one row",
            hint="Add a condition that selects one row, or select an aggregate such as max().",
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
            "a Python process of a task was killed, most likely because memory ran out",
            hint=_KILLED,
        ),
    ),
    (_CANNOT_RUN, _no_python),
    (
        # The next plan finds out what is gone, and whether the user chose to skip it.
        re.compile(rf"KAFKA_DATA_LOSS|{_KAFKA}(OffsetOutOfRange|UnknownTopic)|StaleTopic"),
        lambda text: SourceError(
            f"Kafka no longer holds what the epoch was to read: {_java_line(text)}",
            hint="Check the retention of the topic. The job will retry.",
        ),
    ),
    (
        re.compile(rf"{_KAFKA}(\w*Authentication)Exception"),
        lambda text: UserError(
            f"Kafka refused the login: {_java_line(text)}",
            hint="Check the options 'auth.*' of the table.",
        ),
    ),
    (
        re.compile(rf"{_KAFKA}(\w*Authorization)Exception"),
        lambda text: UserError(
            f"Kafka denied access: {_java_line(text)}",
            hint="Grant the user of the table access by an ACL of the cluster.",
        ),
    ),
    (
        re.compile(rf"{_KAFKA}|org\.apache\.kafka\.common\.KafkaException"),
        lambda text: ConnectionLost(
            f"Kafka could not be read: {_java_line(text)}",
            hint="Check the brokers of the table. The job will retry.",
        ),
    ),
    (_FULL, lambda text: DiskFull(_java_line(text), hint=_FULL_HINT)),
    (_DENIED, lambda text: AccessDenied(_java_line(text), hint=_DENIED_HINT)),
    (
        re.compile(r"ExecutorLostFailure|FetchFailed|Executor heartbeat timed out"),
        lambda text: ExecutorLost(
            _java_line(text), hint="Check the machines of the cluster. The job will retry."
        ),
    ),
    (
        re.compile(r"Master removed our application|All masters are unresponsive"),
        lambda text: ClusterUnavailable(
            f"the Spark cluster ended the application: {_java_line(text)}",
            hint="Check the Spark master and the logs of the executors. The job will retry.",
        ),
    ),
    (
        # The last is the error of a call during which Spark was shut down.
        re.compile(
            r"SparkContext was shut ?down|stopped SparkContext|RejectedExecutionException"
            r'|the return value of "org\.apache\.spark\.SparkContext\.\w+\(\)" is null'
        ),
        lambda _: gone(None),
    ),
    (
        re.compile(r"SPARK_JOB_CANCELLED"),
        lambda text: SparkJobCancelled(
            _java_line(text), hint="Find out who cancelled the Spark job. The job will retry."
        ),
    ),
    (
        re.compile(r"bigger than spark\.driver\.maxResultSize"),
        lambda text: ResultTooLarge(
            _java_line(text), hint="Raise spark.driver.maxResultSize, or lower pipeline.epoch_rows."
        ),
    ),
)
"""Patterns and their errors. The first match wins: causes are listed before their consequences."""


def _java_line(text: str) -> str:
    """Return the message of a JVM failure, without leading names of calls, stages and classes."""
    plain = _BEFORE_JAVA.sub("", text.strip())
    return _first_line(plain)


def _sql_state(error: PySparkException) -> str:
    try:
        return error.getSqlState() or ""
    except Exception:
        return ""


def _message(error: Exception) -> str | None:
    """Return the exception's text; None if the JVM holds it and has ended."""
    try:
        text = error.getMessage() if isinstance(error, PySparkException) else None
        return text or str(error)
    except (Py4JError, OSError, EOFError):
        return None


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "unknown error")
