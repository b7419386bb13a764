"""What the pages of a job do while it changes."""

from __future__ import annotations

import asyncio

from tests.unit.ui.conftest import RIDES, Console
from tests.unit.ui.open_page import opened

from resurgence.errors import StorageError


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
