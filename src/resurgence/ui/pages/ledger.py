"""The ledger of a job, by epoch."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from resurgence.ui.elements.live_html import LiveHtml
from resurgence.ui.job_frame import JobPage, job_framed
from resurgence.ui.shown import PageKey
from resurgence.ui.views.markup import Markup


def add() -> None:
    @ui.page("/jobs/{name}/ledger")
    async def ledger_page(request: Request, name: str) -> None:
        async with job_framed(request, name, "ledger") as job:
            if job is None:
                return
            page = 0

            async def act(facts: dict[str, str]) -> None:
                nonlocal page
                page = max(0, int(facts["value"]))
                await redraw()

            async def redraw() -> None:
                shown.show(await _content(job, page))

            shown = LiveHtml(await _content(job, page), act)
            job.follow(redraw, every=5.0)


async def _content(job: JobPage, page: int) -> Markup:
    return await job.page.console.shown.ledger.get(PageKey(job.name, page))
