"""The ledger of a job, by epoch."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from resurgence.state.inspection.ledger import ledger_of
from resurgence.ui.elements.live_html import LiveHtml
from resurgence.ui.job_frame import JobPage, job_framed
from resurgence.ui.views.ledger import PAGE, ledger_panel
from resurgence.ui.views.lists import pager
from resurgence.ui.views.markup import Markup, html


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
    ledger = ledger_of(await job.page.console.feeds.checkpoints.get(job.name))
    return html("{}{}", ledger_panel(ledger, page), pager(page, PAGE, len(ledger.lines)))
