"""One service with a console for all tests of its gate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from nicegui import app as nicegui_app
from tests.unit.api.simulated_service import (
    SQL,
    KeyBox,
    SimulatedController,
    served,
    simulated,
)

from resurgence.api.access.guard import Guard
from resurgence.control.controller import NewJob
from resurgence.control.store.metadata import KeyRole
from resurgence.ids import JobName
from resurgence.ui.feeds import Feeds
from resurgence.ui.shown import Shown

RIDES = JobName("rides")


class Console:
    """A service with a console."""

    def __init__(self, url: str, keys: KeyBox, controller: SimulatedController) -> None:
        self.url = url
        self.keys = keys
        self.controller = controller
        self.write = keys.add("ops", KeyRole.WRITE)
        self.read = keys.add("viewer", KeyRole.READ)
        self.origin = {"Origin": url}

    def wait_until_it_asks_for_keys(self, *, does: bool) -> None:
        """Keys are read every two seconds."""
        deadline = time.monotonic() + 60
        with self.client() as client:
            while (client.get("/").status_code == 303) is not does:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def wait_until_it_knows(self, key: str) -> None:
        deadline = time.monotonic() + 60
        with self.client() as client:
            while client.post("/login", data={"key": key}, headers=self.origin).status_code != 303:
                assert time.monotonic() < deadline
                time.sleep(1)

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, trust_env=False, timeout=20)

    @contextmanager
    def logged_in(self, key: str) -> Iterator[httpx.Client]:
        with self.client() as client:
            found = client.post("/login", data={"key": key}, headers=self.origin)
            assert found.status_code == 303
            yield client


@pytest.fixture(scope="session")
def shared_console() -> Iterator[Console]:
    controller, keys = SimulatedController(Path()), KeyBox([])
    guard = Guard(failed_logins=5)
    with served(simulated(controller), keys, guard, session_secret=b"secret") as url:
        console = Console(url, keys, controller)
        console.wait_until_it_asks_for_keys(does=True)
        yield console


@pytest.fixture
def console(shared_console: Console, tmp_path: Path) -> Console:
    """With one job, two keys, and nothing read yet."""
    shared_console.controller.begin_anew(tmp_path)
    feeds = Feeds(shared_console.controller)
    nicegui_app.state.console = replace(
        nicegui_app.state.console, feeds=feeds, shown=Shown(feeds, lambda: 0)
    )
    asyncio.run(shared_console.controller.create(NewJob(RIDES, SQL)))
    return shared_console


@pytest.fixture
def open_console(console: Console) -> Iterator[Console]:
    """Without keys."""
    kept, console.keys.kept = console.keys.kept, []
    console.wait_until_it_asks_for_keys(does=False)
    yield console
    console.keys.kept = kept
    console.wait_until_it_asks_for_keys(does=True)
