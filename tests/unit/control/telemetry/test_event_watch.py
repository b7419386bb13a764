"""Followers of events share one query."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from contextlib import ExitStack
from datetime import timedelta

import pytest

from resurgence.control.telemetry.event_watch import EventWatch
from resurgence.errors import StorageError
from resurgence.ids import JobName

A, B = JobName("a"), JobName("b")
INTERVAL = timedelta(milliseconds=5)


class Stored:
    """Events of jobs, by id."""

    def __init__(self) -> None:
        self.events: list[JobName] = []
        self.gone: set[JobName] = set()
        self.is_away = False
        self.calls = 0

    def last_event_id(self) -> int:
        self._count()
        return len(self.events)

    def news(self, jobs: Collection[JobName], after: int) -> tuple[int, set[JobName]]:
        self._count()
        changed = {each for each in jobs if each in self.events[after:] or each in self.gone}
        return len(self.events), changed

    def _count(self) -> None:
        self.calls += 1
        if self.is_away:
            raise StorageError("away")


def run(scenario: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 10))


async def settled(news: asyncio.Event) -> None:
    """Wait for the first wake-up, which every follower gets."""
    await news.wait()
    news.clear()


def test_follower_is_woken_by_events_of_its_job_only() -> None:
    async def scenario() -> None:
        stored = Stored()
        watch = EventWatch(stored, INTERVAL)
        with watch.following(A) as a, watch.following(B) as b:
            await settled(a)
            await settled(b)
            stored.events.append(A)
            await a.wait()
            await asyncio.sleep(0.03)
            assert not b.is_set()

    run(scenario())


def test_event_stored_between_a_look_and_the_first_query_is_not_missed() -> None:
    async def scenario() -> None:
        stored = Stored()
        with EventWatch(stored, INTERVAL).following(A) as news:
            stored.events.append(A)
            await news.wait()

    run(scenario())


def test_number_of_queries_does_not_depend_on_the_number_of_followers() -> None:
    async def calls(followers: int) -> int:
        stored = Stored()
        watch = EventWatch(stored, timedelta(milliseconds=20))
        with ExitStack() as stack:
            for _ in range(followers):
                stack.enter_context(watch.following(A))
            await asyncio.sleep(0.2)
        return stored.calls

    async def scenario() -> None:
        assert await calls(200) <= 12

    run(scenario())


def test_nobody_waits_nothing_is_asked() -> None:
    async def scenario() -> None:
        stored = Stored()
        with EventWatch(stored, INTERVAL).following(A) as news:
            await news.wait()
        await asyncio.sleep(0.03)
        calls = stored.calls
        await asyncio.sleep(0.05)
        assert stored.calls == calls

    run(scenario())


@pytest.mark.parametrize("change", ["gone", "away"])
def test_follower_is_woken_when_its_job_or_the_database_is_gone(change: str) -> None:
    async def scenario() -> None:
        stored = Stored()
        with EventWatch(stored, INTERVAL).following(A) as news:
            await settled(news)
            stored.gone.add(A)
            stored.is_away = change == "away"
            await news.wait()

    run(scenario())
