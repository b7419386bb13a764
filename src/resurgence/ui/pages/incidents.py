"""Incidents: of one job, or of all."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from resurgence.errors import ResurgenceError
from resurgence.ui.console import Console
from resurgence.ui.elements.live_html import LiveHtml
from resurgence.ui.frame import framed, show_failure
from resurgence.ui.job_frame import job_framed
from resurgence.ui.shown import PageKey
from resurgence.ui.views.markup import Markup, html


def add() -> None:
    @ui.page("/incidents")
    async def all_incidents(request: Request) -> None:
        with framed(request, "Incidents", "/incidents") as page:
            LiveHtml(html('<h1>Incidents</h1><span class="dim">of all jobs</span>')).classes("head")
            shown = _List(page.console, "")
            try:
                await shown.build()
            except ResurgenceError as error:
                show_failure(error)
                return
            page.follow(shown.redraw)

    @ui.page("/jobs/{name}/incidents")
    async def job_incidents(request: Request, name: str) -> None:
        async with job_framed(request, name, "incidents") as job:
            if job is not None:
                shown = _List(job.page.console, name)
                await shown.build()
                job.follow(shown.redraw)


class _List:
    """A list of incidents that follows what happens."""

    def __init__(self, console: Console, job: str) -> None:
        self._console = console
        self._job = job
        self._page = 0

    async def build(self) -> None:
        self._element = LiveHtml(await self._content(), self._act)

    async def redraw(self) -> None:
        self._element.show(await self._content())

    async def _act(self, facts: dict[str, str]) -> None:
        self._page = max(0, int(facts["value"]))
        await self.redraw()

    async def _content(self) -> Markup:
        return await self._console.shown.incidents.get(PageKey(self._job, self._page))
