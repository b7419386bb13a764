"""Runs a query over state or dead letters in a process of its own, so that no query can endanger the service.

A SELECT can ask for more memory or time than there is, and DuckDB's own limit does not count
everything: the text of `repeat('x', 1000000000)`, for instance. So the process has a limit of its
address space, is killed at the deadline, and is the only one: another query waits for its turn.
"""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

from resurgence.errors import QueryStopped, error_in_traceback
from resurgence.ids import JobName
from resurgence.state.backend import StateBackend
from resurgence.storage.access import StoreAccess
from resurgence.storage.object_store import ObjectStore

DEADLINE = timedelta(seconds=10)
_TURN_WITHIN = timedelta(seconds=3)
MOST_MEMORY = 2 * 2**30
"""Of addresses. The libraries take half a GiB, on any machine, with these settings: by default they
reserve memory for each core.
"""
_FEW_RESERVES = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKIO_WORKER_THREADS": "2",
}
_TURN = threading.Lock()

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True)
class _Request:
    """What the process is asked, over its standard input: the access holds secrets."""

    url: str
    access: StoreAccess
    job: JobName
    query: Callable[..., object]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class _Answer:
    """The result, or the traceback of an error."""

    result: object
    failure: str = ""


def confined(
    backend: StateBackend,
    query: Callable[Concatenate[StateBackend, _P], _T],
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _T:
    """Return the result of a function of the module `state_queries`. Blocks until its turn comes
    and the process ends; raise QueryStopped if either takes too long, and what the query raises.
    """
    store = backend.store
    request = _Request(store.url, store.access, backend.paths.job, query, args, kwargs)
    if not _TURN.acquire(timeout=_TURN_WITHIN.total_seconds()):
        raise QueryStopped(
            "another query over state or dead letters is running",
            hint="Try again when it has ended.",
        )
    try:
        answer = _asked(request)
    finally:
        _TURN.release()
    if answer.failure:
        raise error_in_traceback(answer.failure) or QueryStopped(
            f"the query failed: {answer.failure.strip().splitlines()[-1]}"
        )
    return answer.result  # type: ignore[return-value]


def _asked(request: _Request) -> _Answer:
    command = [sys.executable, "-m", __name__]
    try:
        done = subprocess.run(
            command,
            input=pickle.dumps(request),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_FEW_RESERVES},
            timeout=DEADLINE.total_seconds(),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise QueryStopped(
            f"the query did not end within {DEADLINE.total_seconds():g} s",
            hint="Read fewer rows, or query the state directory with the command line, which has no"
            " limit.",
        ) from error
    if done.returncode:
        raise QueryStopped(
            "the query needs more memory than a query of the service may use",
            hint="Select fewer or shorter values, or query the state directory with the command line,"
            " which has no limit.",
        )
    answer = pickle.loads(done.stdout)
    assert isinstance(answer, _Answer)
    return answer


def main() -> None:
    """Entry point of the process."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    # The parent may have ended, and then no one kills this process.
    seconds = int(DEADLINE.total_seconds())
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    # The module that is run is `__main__`; pickles refer to the one of its own name.
    from resurgence.state.inspection import query_process

    request = pickle.loads(sys.stdin.buffer.read())
    sys.stdout.buffer.write(pickle.dumps(query_process.answered(request)))
    sys.stdout.buffer.flush()
    os._exit(0)


def answered(request: _Request) -> _Answer:
    """Return the answer to a request."""
    backend = StateBackend(ObjectStore(request.url, access=request.access), request.job)
    try:
        return _Answer(request.query(backend, *request.args, **request.kwargs))
    except MemoryError:
        raise
    except Exception as error:
        return _Answer(None, "".join(traceback.format_exception(error)))


if __name__ == "__main__":
    main()
