"""What a session may change, whatever its page sends, and when its pages end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from nicegui import ui
from tests.unit.state.real_state import RealJob
from tests.unit.ui.conftest import RIDES, Console
from tests.unit.ui.open_page import OpenPage, opened

from resurgence.control.store.metadata import KeyRole
from resurgence.errors import UserError
from resurgence.ids import Epoch
from resurgence.state.inspection.dead_letters import Letters
from resurgence.ui import end_of_sessions
from resurgence.ui.access.doorkeeper import Doorkeeper
from resurgence.ui.access.visitor import Visitor
from resurgence.ui.pages import checkpoints

REQUESTS = [
    "create",
    "edit",
    "start",
    "stop",
    "restart",
    "rescale",
    "delete",
    "rollback",
    "replay",
    "preview",
]


async def stop(page: OpenPage) -> None:
    await page.act(action="stop")
    await page.click("Stop job")


async def restart(page: OpenPage) -> None:
    await page.act(action="restart")
    await page.click("Restart job")


async def rescale(page: OpenPage) -> None:
    await page.act(action="rescale")
    await page.click("Rescale job")


async def delete(page: OpenPage) -> None:
    await page.act(action="delete")
    await page.until(lambda: bool(page.buttons("Delete job")))
    next(each for each in page.elements if isinstance(each, ui.input)).set_value("rides")
    await page.click("Delete job")


async def start(page: OpenPage) -> None:
    await page.act(action="start")


async def verify(page: OpenPage) -> None:
    await page.act(action="verify", epoch="1")


async def roll_back(page: OpenPage) -> None:
    await page.act(action="rollback", epoch="1")
    await page.click("Roll back")


async def replay(page: OpenPage) -> None:
    await page.act(action="replay", letter="1-0")
    await page.click("Replay")


async def edit(page: OpenPage) -> None:
    await page.click("Apply edit…")
    await page.click("Apply edit")


async def preview(page: OpenPage) -> None:
    await page.click("Preview")


async def create(page: OpenPage) -> None:
    next(each for each in page.elements if isinstance(each, ui.input)).set_value("other")
    await page.click("Create and start")


ACTIONS: dict[str, tuple[str, Callable[[OpenPage], Awaitable[None]]]] = {
    "start": ("/jobs/rides", start),
    "stop": ("/jobs/rides", stop),
    "restart": ("/jobs/rides", restart),
    "rescale": ("/jobs/rides", rescale),
    "delete": ("/jobs/rides", delete),
    "verify": ("/jobs/rides/checkpoints", verify),
    "rollback": ("/jobs/rides/checkpoints", roll_back),
    "replay": ("/jobs/rides/dead-letters", replay),
    "edit": ("/jobs/rides/sql", edit),
    "preview": ("/jobs/rides/sql", preview),
    "create": ("/new", create),
}
READABLE = [name for name, (_, each) in ACTIONS.items() if each not in (edit, preview, create)]
"""Actions of pages that a key of the role read may open."""


@dataclass
class Asked:
    """What pages asked of the service; nothing of it is done."""

    console: Console
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def asked(console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    RealJob.at(str(tmp_path)).run(1, 2)
    controller, found = console.controller, Asked(console)
    record = controller.records[RIDES]
    pipeline = replace(record.pipeline, state_url=f"file://{tmp_path}")
    controller.records[RIDES] = replace(record, pipeline=pipeline)
    letter = {
        "id": "1-0",
        "operator": "source-rides",
        "epoch": 1,
        "position": "line 1",
        "error": "not JSON",
        "raw": b"?",
        "source": "rides",
        "at": datetime(2030, 1, 1, tzinfo=UTC),
        "replayed": False,
        "key": None,
        "headers": None,
        "record_timestamp": None,
    }

    async def letters(*_: object) -> Letters:
        return Letters(pa.Table.from_pylist([letter]))

    async def no_fates(*_: object) -> tuple[Epoch, tuple[()]]:
        return Epoch(0), ()

    def recorder(name: str) -> Callable[..., Awaitable[object]]:
        async def record_it(*_: object, **__: object) -> object:
            found.requests.append(name)
            raise UserError("recorded")

        return record_it

    for name in REQUESTS:
        monkeypatch.setattr(controller, name, recorder(name), raising=False)
    monkeypatch.setattr(controller, "dead_letters", letters, raising=False)
    monkeypatch.setattr(controller, "preview_edit", no_fates, raising=False)

    def verified(*_: object) -> object:
        found.requests.append("verify")
        raise UserError("recorded")

    monkeypatch.setattr(checkpoints, "_verified", verified)
    return found


@pytest.mark.parametrize("action", ACTIONS)
def test_a_session_of_the_role_write_may_act(asked: Asked, action: str) -> None:
    path, act = ACTIONS[action]

    async def check() -> None:
        async with opened(asked.console, asked.console.write, path) as page:
            await act(page)
            await page.hear("notify", "recorded")

    asyncio.run(check())
    assert asked.requests == [action]


@pytest.mark.parametrize("action", READABLE)
def test_a_page_of_the_role_read_cannot_act_even_if_it_is_forged(asked: Asked, action: str) -> None:
    path, act = ACTIONS[action]

    async def check() -> None:
        async with opened(asked.console, asked.console.read, path) as page:
            await act(page)
            await page.hear("notify", "may only read")

    asyncio.run(check())
    assert asked.requests == []


@pytest.fixture
def lower_role(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lowers the role of all keys, and leaves their pages open."""

    async def only_read(_: Doorkeeper, visitor: Visitor) -> Visitor:
        return replace(visitor, may_write=False)

    async def leave_open(_: object) -> None:
        return

    def lower() -> None:
        monkeypatch.setattr(end_of_sessions, "close_ended", leave_open)
        monkeypatch.setattr(Doorkeeper, "again", only_read)

    return lower


@pytest.mark.parametrize("action", [each for each in ACTIONS if each != "edit"])
def test_a_page_that_could_act_asks_again_before_it_does(
    asked: Asked, action: str, lower_role: Callable[[], None]
) -> None:
    path, act = ACTIONS[action]

    async def check() -> None:
        async with opened(asked.console, asked.console.write, path) as page:
            lower_role()
            await act(page)
            await page.hear("notify", "may only read")

    asyncio.run(check())
    assert asked.requests == []


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_an_edit_asks_before_its_dry_run_and_again_before_it_is_applied(
    asked: Asked, lower_role: Callable[[], None], is_confirmed: bool
) -> None:
    async def check() -> None:
        async with opened(asked.console, asked.console.write, "/jobs/rides/sql") as page:
            if is_confirmed:
                await page.click("Apply edit…")
                await page.until(lambda: bool(page.buttons("Apply edit")))
            lower_role()
            await page.click("Apply edit" if is_confirmed else "Apply edit…")
            await page.hear("notify", "may only read")

    asyncio.run(check())
    assert asked.requests == []


def test_the_editor_of_a_new_job_is_not_built_for_the_role_read(console: Console) -> None:
    async def check() -> None:
        async with opened(console, console.read, "/new") as page:
            assert not page.buttons("Create and start")
            assert not [each for each in page.elements if isinstance(each, ui.codemirror)]
        async with opened(console, console.read, "/jobs/rides/sql") as page:
            assert not page.buttons("Preview")
            assert not page.buttons("Apply edit…")

    asyncio.run(check())


def test_a_logout_ends_the_open_pages_of_its_session_only(console: Console) -> None:
    async def check() -> None:
        async with (
            opened(console, console.write, "/jobs/rides") as one,
            opened(console, console.write, "/jobs/rides") as other,
        ):
            await asyncio.to_thread(one.log_out, console)
            await one.hear("run_javascript", "location.reload()")
            await one.until(lambda: not one.is_open)
            assert other.is_open

    asyncio.run(check())


def test_the_open_pages_of_a_removed_key_end(console: Console) -> None:
    kept = console.keys.kept
    temporary = console.keys.add("temporary", KeyRole.WRITE)

    async def check() -> None:
        await asyncio.to_thread(console.wait_until_it_knows, temporary)
        async with opened(console, temporary, "/jobs/rides") as page:
            console.keys.kept = kept
            await page.hear("run_javascript", "location.reload()")
            await page.until(lambda: not page.is_open)

    asyncio.run(check())


def test_the_sessions_are_watched_even_if_a_page_ends_meanwhile(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NiceGUI raises KeyError if a page was deleted before."""
    failures = iter([KeyError("a page"), RuntimeError("another one")])
    close_ended = end_of_sessions.close_ended
    calls: list[bool] = []

    async def failing(of: object) -> None:
        failure = next(failures, None)
        calls.append(failure is None)
        if failure is not None:
            raise failure
        await close_ended(of)  # type: ignore[arg-type]

    monkeypatch.setattr(end_of_sessions, "close_ended", failing)

    async def check() -> None:
        async with opened(console, console.write, "/jobs/rides") as page:
            await page.until(lambda: len(calls) > 2)
            assert calls[:3] == [False, False, True]
            await asyncio.to_thread(page.log_out, console)
            await page.until(lambda: not page.is_open)

    asyncio.run(check())
