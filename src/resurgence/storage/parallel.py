"""Requests that do not depend on each other, made at the same time: one round trip instead of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_MOST_THREADS = 32


def in_parallel(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make all calls, and return their results in the same order. When all have ended, raise the
    first failure.
    """
    if len(calls) <= 1:
        return [call() for call in calls]
    with ThreadPoolExecutor(min(len(calls), _MOST_THREADS), "storage") as threads:
        started = [threads.submit(call) for call in calls]
    return [each.result() for each in started]
