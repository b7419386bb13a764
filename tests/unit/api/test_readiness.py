"""Readiness: one check for many requests, with a deadline."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from resurgence.api.readiness import Readiness
from resurgence.errors import StorageError


def test_many_requests_share_one_check() -> None:
    checks = 0

    async def check() -> None:
        nonlocal checks
        checks += 1

    async def scenario() -> None:
        readiness = Readiness(check, freshness=timedelta(hours=1))
        await asyncio.gather(*(readiness.require() for _ in range(5)))
        await readiness.require()

    asyncio.run(scenario())
    assert checks == 1


def test_a_failure_is_reported_until_a_later_check_succeeds() -> None:
    answers: list[Exception | None] = [StorageError("the disk is full"), None]

    async def check() -> None:
        if (error := answers.pop(0)) is not None:
            raise error

    async def scenario() -> None:
        readiness = Readiness(check, freshness=timedelta(milliseconds=300))
        for _ in range(2):
            with pytest.raises(StorageError, match="the disk is full"):
                await readiness.require()
        await asyncio.sleep(0.4)
        await readiness.require()

    asyncio.run(scenario())


def test_a_check_that_hangs_is_not_waited_for_nor_repeated() -> None:
    checks = 0

    async def check() -> None:
        nonlocal checks
        checks += 1
        await asyncio.Event().wait()

    async def scenario() -> None:
        readiness = Readiness(check, timedelta(0), patience=timedelta(milliseconds=20))
        for _ in range(3):
            with pytest.raises(StorageError, match="takes too long"):
                await readiness.require()

    asyncio.run(asyncio.wait_for(scenario(), 10))
    assert checks == 1
