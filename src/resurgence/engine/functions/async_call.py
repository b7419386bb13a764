"""Calls a user's async function in a task: the calls of a batch overlap, results stay in order.

The function's limits bound the number of concurrent calls. The first call that fails or times out
fails the batch: the others are cancelled, and calls that ignore the cancellation are abandoned. A
batch as a whole may take no longer than its calls may take, which also detects a call that blocks
the event loop.

All batches of a process run in one event loop, so that objects that a function caches between
calls, such as a client session, stay usable. Runs in Python workers, so it does not import Spark.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from resurgence.engine.functions.user_call import (
    as_call,
    converted,
    failure,
    is_null,
    watch_exits,
)
from resurgence.errors import FunctionTimedOut
from resurgence.udf import CallLimits, UserFunction

_GRACE_SECONDS = 1.0
"""Extra time for cancelled calls to end, and for a batch beyond the time of its calls."""

Row = tuple[Any, ...]


def answers(function: UserFunction, rows: Sequence[Row]) -> list[Any]:
    """Return the results of an async function, one per row of arguments, in their order."""
    return _loop(os.getpid()).run_until_complete(_Batch(function, rows).run())


@functools.cache
def _loop(pid: int) -> asyncio.AbstractEventLoop:
    """Return the event loop of a process. A fork gets its own."""
    return asyncio.new_event_loop()


class _Batch:
    """The calls for a batch of rows."""

    def __init__(self, function: UserFunction, rows: Sequence[Row]) -> None:
        assert function.limits is not None, f"{function.name} is not async"
        self._function = function
        self._limits: CallLimits = function.limits
        self._results: list[Any] = [None] * len(rows)
        self._rows = list(enumerate(rows))
        self._calls: set[asyncio.Task[Any]] = set()

    async def run(self) -> list[Any]:
        waiting = iter(self._rows)
        turns = -(-len(self._rows) // self._limits.max_in_flight)
        most = turns * self._limits.timeout.total_seconds() + _GRACE_SECONDS
        deadline = asyncio.get_running_loop().time() + most
        callers = {
            asyncio.create_task(self._call_each(waiting, deadline))
            for _ in range(min(self._limits.max_in_flight, len(self._rows)))
        }
        try:
            await asyncio.gather(*callers)
        finally:
            left = {each for each in (*callers, *self._calls) if not each.done()}
            for each in left:
                each.cancel()
            if left:
                await asyncio.wait(left, timeout=_GRACE_SECONDS)
        return self._results

    async def _call_each(self, waiting: Iterator[tuple[int, Row]], deadline: float) -> None:
        """Call the function for one row after the other until there are no more."""
        for number, row in waiting:
            if None in row and is_null(self._function, row):
                continue
            if asyncio.get_running_loop().time() > deadline:
                raise self._timed_out(
                    row, "was not called in time because earlier calls blocked it"
                )
            call = asyncio.create_task(self._call(row))
            self._calls.add(call)
            await asyncio.wait({call}, timeout=self._limits.timeout.total_seconds())
            if not call.done():
                seconds = self._limits.timeout.total_seconds()
                raise self._timed_out(row, f"timed out after {seconds:g} s")
            self._calls.discard(call)
            if call.cancelled():
                raise failure(self._function, row, asyncio.CancelledError("the call was cancelled"))
            self._results[number] = call.result()

    async def _call(self, row: Row) -> Any:
        watch_exits()
        try:
            value = await self._function.call(*row)
        except (Exception, SystemExit) as error:
            raise failure(self._function, row, error) from error
        return converted(self._function, row, value)

    def _timed_out(self, row: Row, what: str) -> FunctionTimedOut:
        return FunctionTimedOut(
            f"function {as_call(self._function.name, row)} {what}",
            hint="Check the service that it calls, or allow more time with"
            " @udf(timeout='1 minute'). The job will retry.",
        )
