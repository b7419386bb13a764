"""The clock of the failure detector stops while the controller is paused."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from resurgence.clock import SystemClock
from resurgence.control.detection import pause_aware_clock
from resurgence.control.detection.pause_aware_clock import PauseAwareClock

PAUSE = timedelta(seconds=0.5)
LOOK = timedelta(seconds=0.02)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pause_aware_clock, "_SAMPLE_SECONDS", LOOK.total_seconds())


def test_it_advances_while_the_event_loop_runs_and_stops_while_it_is_blocked() -> None:
    async def scene() -> tuple[timedelta, timedelta, timedelta]:
        clock = PauseAwareClock(SystemClock())
        clock.start()
        began = clock.now()
        await asyncio.sleep(PAUSE.total_seconds())
        paused = clock.now()
        time.sleep(PAUSE.total_seconds())
        resumed = clock.now()
        await asyncio.sleep(2 * LOOK.total_seconds())
        return paused - began, resumed - paused, clock.now() - resumed

    before, within, after = asyncio.run(scene())
    assert before >= PAUSE / 2
    assert within <= 3 * LOOK
    # Looking at the time takes nothing back.
    assert timedelta(0) < after < PAUSE


def test_a_clock_that_is_not_started_or_is_closed_is_the_one_it_is_made_from() -> None:
    clock = PauseAwareClock(SystemClock())

    async def open_and_close() -> None:
        clock.start()
        clock.close()

    for _ in range(2):
        began = clock.now()
        time.sleep(0.1)
        assert clock.now() - began >= timedelta(seconds=0.1)
        asyncio.run(open_and_close())
