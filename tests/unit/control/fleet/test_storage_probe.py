"""Whether the storage answers: failures, answers that do not come, and their end."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta

import pytest

from resurgence.control.fleet import storage_probe
from resurgence.control.fleet.storage_probe import StorageProbe
from resurgence.errors import StorageError

PATIENCE = timedelta(milliseconds=50)


def test_storage_is_unreachable_from_the_first_failure_to_the_next_answer() -> None:
    failing = False

    def ask() -> None:
        if failing:
            raise StorageError("no route")

    async def scene() -> None:
        nonlocal failing
        probe = StorageProbe(ask, timedelta(seconds=10))
        await probe.check()
        assert probe.is_reachable
        assert probe.unreachable_for(time.monotonic()) == timedelta(0)
        failing, began = True, time.monotonic()
        for _ in range(2):
            await probe.check()
            assert not probe.is_reachable
        assert timedelta(seconds=4) < probe.unreachable_for(began + 5) <= timedelta(seconds=5)
        failing = False
        await probe.check()
        assert probe.is_reachable

    asyncio.run(scene())


def test_an_answer_that_does_not_come_is_a_failure_and_is_asked_for_again_only_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, repaired = threading.Semaphore(0), threading.Event()

    def ask() -> None:
        asked.release()
        assert repaired.wait(30)

    async def scene() -> None:
        probe = StorageProbe(ask, PATIENCE)
        for _ in range(3):
            await probe.check()
            assert not probe.is_reachable
        assert asked.acquire(timeout=1)
        assert not asked.acquire(blocking=False)
        monkeypatch.setattr(storage_probe, "_ABANDON", timedelta(0))
        await probe.check()
        assert asked.acquire(timeout=1)
        repaired.set()
        while not probe.is_reachable:
            await probe.check()

    asyncio.run(scene())
