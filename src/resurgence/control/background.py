"""Runs blocking calls outside the event loop, each in a thread that no other call waits for.

Threads are reused. To start one costs the event loop milliseconds: `Thread.start` waits until the new
thread runs, and that thread keeps the interpreter to itself for a while. So a thread waits a while for
its next call before it ends. There is no limit, as there is in the pool of `asyncio.to_thread`: a few
hanging calls of one job would exhaust it, and keep the process from exiting.

Calls that have a limit anyway, such as the connections of a database, take turns in a `Lane`: they wait
in the event loop, not in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import ParamSpec, TypeVar

_IDLE = timedelta(seconds=5)
"""How long a thread waits for its next call."""

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Call = Callable[[], None]


class _Threads:
    """Daemon threads, as many as there are calls at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: deque[queue.SimpleQueue[_Call]] = deque()
        """The inboxes of the threads that wait, the last used ones at the end."""

    def submit(self, call: _Call) -> None:
        """Run a call at once. It must not raise."""
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is not None:
            inbox.put(call)
        else:
            threading.Thread(target=self._run, args=(call,), name="blocking", daemon=True).start()

    def _run(self, call: _Call) -> None:
        inbox: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        following: _Call | None = call
        while following is not None:
            following()
            with self._lock:
                self._idle.append(inbox)
            following = self._next(inbox)

    def _next(self, inbox: queue.SimpleQueue[_Call]) -> _Call | None:
        with contextlib.suppress(queue.Empty):
            return inbox.get(timeout=_IDLE.total_seconds())
        with self._lock:
            if inbox in self._idle:
                self._idle.remove(inbox)
                return None
        # A call was assigned just now.
        return inbox.get()


_THREADS = _Threads()


async def in_thread(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run a call like asyncio.to_thread, but never wait for another one to end."""
    return await _submitted(lambda: call(*args, **kwargs))


class Lane:
    """At most so many calls at a time; the others wait for their turn, first come, first served. A
    call whose caller was cancelled occupies its place until it returns.
    """

    def __init__(self, width: int) -> None:
        self._places = asyncio.Semaphore(width)

    async def call(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a call in a thread when it is its turn."""
        await self._places.acquire()
        return await _submitted(lambda: call(*args, **kwargs), self._places.release)


def _submitted(
    call: Callable[[], _T], ended: Callable[[], None] = lambda: None
) -> asyncio.Future[_T]:
    """Run a call in a thread. `ended` is called when it has returned, even if no one waits for it."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_T] = loop.create_future()

    def settle(result: _T | None, error: BaseException | None) -> None:
        ended()
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: _T | None = None
        error: BaseException | None = None
        try:
            result = call()
        except BaseException as raised:
            error = raised
        # A closed loop raises, but then no caller waits for the result.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, error)

    _THREADS.submit(run)
    return answer
