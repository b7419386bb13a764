"""Every wait has a deadline: long polls, slow bodies, a hung database."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta

import pytest
from tests.unit.api.simulated_service import NOW

from resurgence.api.access.api_keys import new_key
from resurgence.api.access.key_ring import KeyRing
from resurgence.api.error_answer import Refusal
from resurgence.api.long_polls import LongPolls
from resurgence.control.store.metadata import ApiKey, KeyRole
from resurgence.errors import StorageError


async def nothing() -> list[int]:
    return []


async def never() -> bool:
    return False


async def always() -> bool:
    return True


def test_the_number_of_long_polls_is_bounded() -> None:
    async def scenario() -> None:
        polls = LongPolls(limit=2)
        waiting = [
            asyncio.create_task(polls.wait_for(nothing, 30, never, asyncio.Event()))
            for _ in range(2)
        ]
        await asyncio.sleep(0)
        with pytest.raises(Refusal) as caught:
            await polls.wait_for(nothing, 30, never, asyncio.Event())
        assert caught.value.status == 429
        assert await polls.wait_for(nothing, 0, never, asyncio.Event()) == [], (
            "who does not wait is not counted"
        )
        polls.close()
        assert await asyncio.gather(*waiting) == [[], []]
        assert await polls.wait_for(nothing, 30, never, asyncio.Event()) == [], (
            "there is room again, but no wait"
        )

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_a_disconnected_client_ends_its_long_poll() -> None:
    began = time.monotonic()

    async def scenario() -> None:
        assert await LongPolls().wait_for(nothing, 30, always, asyncio.Event()) == []

    asyncio.run(scenario())
    assert time.monotonic() - began < 5


def test_a_long_poll_looks_only_when_there_are_news() -> None:
    async def scenario() -> None:
        stored: list[int] = []
        looks = 0

        async def look() -> list[int]:
            nonlocal looks
            looks += 1
            return stored

        news = asyncio.Event()
        polls = LongPolls(interval=timedelta(milliseconds=5))
        waiting = asyncio.create_task(polls.wait_for(look, 30, never, news))
        await asyncio.sleep(0.1)
        assert looks == 1
        stored.append(7)
        news.set()
        assert await waiting == [7]
        assert looks == 2

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_a_hung_database_delays_no_request_beyond_its_deadline() -> None:
    key = new_key("reader", KeyRole.READ, NOW)[1]
    hang, calls = threading.Event(), 0

    def read() -> list[ApiKey]:
        nonlocal calls
        calls += 1
        if calls > 1:
            hang.wait(20)
        return [key]

    async def scenario() -> None:
        ring = KeyRing(read, freshness=timedelta(0), patience=timedelta(milliseconds=50))
        assert list(await ring.keys()) == [key]
        for _ in range(5):
            assert list(await ring.keys()) == [key]
        assert calls == 2, "one reader at a time"
        hang.set()

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_without_keys_from_the_database_access_is_denied() -> None:
    def read() -> list[ApiKey]:
        raise StorageError("away")

    with pytest.raises(StorageError):
        asyncio.run(KeyRing(read).keys())
