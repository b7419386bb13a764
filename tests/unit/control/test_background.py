"""Blocking calls outside the event loop."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from resurgence.control.background import Lane, in_thread


def test_calls_one_after_the_other_share_a_thread() -> None:
    async def run() -> set[int]:
        found = set()
        for _ in range(20):
            found.add(await in_thread(threading.get_ident))
            await asyncio.sleep(0.005)  # a thread is free shortly after its result arrives
        return found

    assert len(asyncio.run(run())) <= 2


def test_hanging_calls_do_not_delay_others() -> None:
    async def run() -> float:
        release = threading.Event()
        hanging = [asyncio.create_task(in_thread(release.wait, 10)) for _ in range(50)]
        await asyncio.sleep(0)
        began = time.monotonic()
        assert await in_thread(lambda: 1) == 1
        took = time.monotonic() - began
        release.set()
        await asyncio.gather(*hanging)
        return took

    assert asyncio.run(run()) < 5


def test_error_of_a_call_is_raised() -> None:
    def fail() -> None:
        raise KeyError("x")

    async def run() -> None:
        await in_thread(fail)

    with pytest.raises(KeyError):
        asyncio.run(run())


def test_lane_runs_no_more_calls_at_a_time_than_it_is_wide() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def call() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.005)
        with lock:
            running -= 1

    async def run() -> None:
        lane = Lane(3)
        await asyncio.gather(*(lane.call(call) for _ in range(30)))

    asyncio.run(run())
    assert most == 3


def test_cancelled_call_occupies_its_lane_until_it_returns() -> None:
    async def run() -> None:
        lane, release = Lane(1), threading.Event()
        first = asyncio.create_task(lane.call(release.wait, 10))
        await asyncio.sleep(0.02)
        first.cancel()
        second = asyncio.create_task(lane.call(lambda: 2))
        await asyncio.sleep(0.05)
        assert not second.done()
        release.set()
        assert await second == 2

    asyncio.run(run())


def test_caller_cancelled_while_it_waits_for_its_turn_occupies_nothing() -> None:
    async def run() -> None:
        lane, release = Lane(1), threading.Event()
        first = asyncio.create_task(lane.call(release.wait, 10))
        second = asyncio.create_task(lane.call(lambda: 2))
        await asyncio.sleep(0.02)
        second.cancel()
        release.set()
        await first
        assert await lane.call(lambda: 3) == 3

    asyncio.run(run())
