"""What the pages of a job do while it changes."""

from __future__ import annotations

import asyncio
import gc
import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from nicegui import ui
from tests.unit.api.simulated_service import NOW
from tests.unit.ui.conftest import RIDES, Console
from tests.unit.ui.open_page import opened

from resurgence.errors import StorageError
from resurgence.ui.feeds import Feeds
from resurgence.ui.shown import Shown


def test_a_page_stays_open_while_the_job_cannot_be_read(console: Console) -> None:
    async def check() -> None:
        async with opened(console, console.read, "/jobs/rides") as page:
            console.controller.failing = StorageError("no storage", hint="Wait.")
            reads = console.controller.reads
            await page.until(lambda: console.controller.reads > reads + 3)
            console.controller.failing = None
            await asyncio.sleep(0.2)
            assert not [what for kind, what in page.sent if kind == "open"]
            assert page.is_open

    asyncio.run(check())


def test_the_page_of_a_deleted_job_leads_to_the_list(console: Console) -> None:
    async def check() -> None:
        async with opened(console, console.read, "/jobs/rides") as page:
            del console.controller.records[RIDES]
            await page.hear("open", "/")

    asyncio.run(check())


def test_the_charts_of_a_recreated_job_begin_anew(console: Console) -> None:
    controller = console.controller

    def sealed(epoch: int) -> None:
        controller.happened(RIDES, "checkpoint", epoch=epoch, rows=10, duration=1.0)

    async def check() -> None:
        feeds = Feeds(controller)
        for each in range(1, 4):
            sealed(each)
        before = await feeds.history.get(RIDES)
        assert [each.epoch for each in before.points] == [1, 2, 3]
        record = controller.records[RIDES]
        controller.records[RIDES] = replace(record, created_at=NOW + timedelta(days=1))
        del controller.stored[RIDES]
        sealed(1)
        feeds.job.expire(RIDES)
        feeds.history.expire(RIDES)
        after = await feeds.history.get(RIDES)
        assert [each.epoch for each in after.points] == [1]

    asyncio.run(check())


def test_the_failing_operator_is_marked_as_soon_as_the_incident_is_known(
    console: Console,
) -> None:
    """What is read from storage is older than that."""
    controller = console.controller

    async def check() -> None:
        feeds = Feeds(controller)
        shown = Shown(feeds, lambda: 0)
        operator = str((await controller.graph(RIDES)).operators[0].id)
        assert "failing" not in await shown.dataflow.get(RIDES)
        controller.progress = {"incident": {"operator_id": operator}}
        feeds.job.expire(RIDES)
        assert "failing" in await shown.dataflow.get(RIDES)
        controller.progress = {}
        feeds.job.expire(RIDES)
        assert "failing" not in await shown.dataflow.get(RIDES)

    asyncio.run(check())


def test_typed_functions_run_when_their_editor_is_left_and_not_before(console: Console) -> None:
    text = "def doubled(number): ..."

    async def check() -> None:
        async with opened(console, console.write, "/jobs/rides/sql") as page:
            sql, functions, _ = (e for e in page.elements if isinstance(e, ui.codemirror))
            typed = {"sections": [0, len(text)], "inserted": [[text]]}
            await page.send(functions, "update:value", typed)
            await page.until(lambda: functions.value == text)
            # The text is compiled again, but with the functions that there were before.
            compilations = len(console.controller.compiled)
            changed = {"sections": [0, 1, len(sql.value), -1], "inserted": [["\n"]]}
            await page.send(sql, "update:value", changed)
            await page.until(lambda: len(console.controller.compiled) > compilations)
            assert set(console.controller.compiled) == {None}
            await page.send(functions, "focusout", {})
            await page.until(lambda: console.controller.compiled[-1] == text)

    asyncio.run(check())


def test_a_dialog_is_removed_when_it_is_closed_and_its_action_goes_on(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    async def stop(*_: object) -> None:
        await asyncio.to_thread(go_on.wait, 30)

    monkeypatch.setattr(console.controller, "stop", stop)

    async def check() -> None:
        async with opened(console, console.write, "/jobs/rides") as page:
            before = len(page.elements)
            for _ in range(3):
                await page.act(action="stop")
                await page.until(lambda: len(page.buttons("Stop job")) == 1)
                await page.click("Stop job")
                await page.close_dialog()
                await page.until(lambda: not page.buttons("Stop job"))
                gc.collect()
                go_on.set()
                await page.hear("notify", "Requested to stop")
                page.sent.clear()
                go_on.clear()
            # Each leaves an invisible element beside the button that opened it.
            assert len(page.elements) <= before + 3

    asyncio.run(check())
