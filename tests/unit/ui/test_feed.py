"""Values that many pages share."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from resurgence.errors import StorageError
from resurgence.ui.feed import Derived, Feed


class Source:
    """Counts its reads."""

    def __init__(self) -> None:
        self.reads = 0
        self.value: list[int] = [1]
        self.error: Exception | None = None
        self.now = 0.0

    async def read(self, _key: str) -> list[int]:
        self.reads += 1
        await asyncio.sleep(0)
        if self.error:
            raise self.error
        return [*self.value]

    def feed(self) -> Feed[str, list[int]]:
        return Feed(self.read, timedelta(seconds=2), lambda: self.now)


def test_pages_that_ask_at_the_same_time_share_one_read() -> None:
    async def check() -> None:
        source = Source()
        feed = source.feed()
        found = await asyncio.gather(*(feed.get("jobs") for _ in range(50)))
        assert source.reads == 1
        assert all(each is found[0] for each in found)

    asyncio.run(check())


def test_a_fresh_value_is_not_read_again() -> None:
    async def check() -> None:
        source = Source()
        feed = source.feed()
        await feed.get("jobs")
        source.now = 1.9
        await feed.get("jobs")
        assert source.reads == 1
        source.now = 2.0
        await feed.get("jobs")
        assert source.reads == 2

    asyncio.run(check())


def test_an_equal_value_stays_the_same_object() -> None:
    async def check() -> None:
        source = Source()
        feed = source.feed()
        first = await feed.get("jobs")
        source.now = 5
        assert await feed.get("jobs") is first
        source.value, source.now = [2], 10
        assert await feed.get("jobs") == [2]

    asyncio.run(check())


def test_an_error_is_shared_and_not_repeated_until_it_is_stale() -> None:
    async def check() -> None:
        source = Source()
        source.error = StorageError("no storage", hint="Wait.")
        feed = source.feed()
        for _ in range(3):
            with pytest.raises(StorageError):
                await feed.get("jobs")
        assert source.reads == 1
        source.error, source.now = None, 3
        assert await feed.get("jobs") == [1]

    asyncio.run(check())


def test_an_expired_value_is_read_again() -> None:
    async def check() -> None:
        source = Source()
        feed = source.feed()
        await feed.get("jobs")
        feed.expire("jobs")
        await feed.get("jobs")
        assert source.reads == 2

    asyncio.run(check())


def test_what_no_page_asks_for_is_forgotten() -> None:
    async def check() -> None:
        source = Source()
        feed = source.feed()
        await feed.get("gone")
        source.now = 1000
        await feed.get("jobs")
        assert [*feed._entries] == ["jobs"]

    asyncio.run(check())


def test_a_value_that_expires_during_its_read_is_read_again() -> None:
    async def check() -> None:
        source = Source()
        feed = source.feed()
        before = asyncio.create_task(feed.get("jobs"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert source.reads == 1
        feed.expire("jobs")
        await before
        assert source.reads == 2
        await feed.get("jobs")
        assert source.reads == 2

    asyncio.run(check())


def test_a_derived_value_is_computed_again_only_if_its_source_has_changed() -> None:
    async def check() -> None:
        source, computed = Source(), []
        feed = source.feed()

        async def sources(key: str) -> tuple[object, ...]:
            return (await feed.get(key),)

        def derive(key: str, value: list[int]) -> str:
            computed.append(key)
            return f"{key}: {value}"

        derived: Derived[str, str] = Derived(sources, derive)
        found = await asyncio.gather(*(derived.get("jobs") for _ in range(50)))
        source.now = 5
        assert await derived.get("jobs") is found[0]
        assert (source.reads, len(computed)) == (2, 1)
        source.value, source.now = [2], 10
        assert await derived.get("jobs") == "jobs: [2]"
        assert len(computed) == 2

    asyncio.run(check())
