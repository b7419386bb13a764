"""Calls of a user's async function in a task: those of a batch overlap, results keep their order.

At most so many calls are under way as the function's limits say. The first that fails, or takes too
long, fails the batch: what is left is cancelled, and nobody waits for a call that does not heed
that. Of a batch as a whole, no more time is taken than its calls may take; so one that blocks the
others is found out, too.

All batches of a process run in one event loop, so that what a function keeps from call to call, a
session of a client, say, stays usable. Travels to Python workers, so it imports nothing of Spark.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from resurgence.engine.functions.user_call import as_call, failure, fitted, is_null, watch_exits
from resurgence.errors import FunctionTimedOut
from resurgence.udf import CallLimits, UserFunction

_GRACE_SECONDS = 1.0
"""How long cancelled calls may take to end, and a batch beyond the time of its calls."""

Row = tuple[Any, ...]


def answers(function: UserFunction, rows: Sequence[Row]) -> list[Any]:
    """The results of an async function, one for each row of arguments, in their order."""
    return _loop(os.getpid()).run_until_complete(_Batch(function, rows).run())


@functools.cache
def _loop(pid: int) -> asyncio.AbstractEventLoop:
    """The one event loop of a process; a fork of it gets another."""
    return asyncio.new_event_loop()


class _Batch:
    """The calls for some rows."""

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
        """Makes one call after the other, as long as there are rows."""
        for number, row in waiting:
            if None in row and is_null(self._function, row):
                continue
            if asyncio.get_running_loop().time() > deadline:
                raise self._too_slow(row, "was not called in time: calls before it blocked it")
            call = asyncio.create_task(self._call(row))
            self._calls.add(call)
            await asyncio.wait({call}, timeout=self._limits.timeout.total_seconds())
            if not call.done():
                seconds = self._limits.timeout.total_seconds()
                raise self._too_slow(row, f"gave no answer within {seconds:g} s")
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
        return fitted(self._function, row, value)

    def _too_slow(self, row: Row, what: str) -> FunctionTimedOut:
        return FunctionTimedOut(
            f"function {as_call(self._function.name, row)} {what}",
            hint="is what it asks up? it is tried again, a few times; a call may take longer with"
            " @udf(timeout='1 minute')",
        )
