"""The log of a job's worker, followed live, filtered."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui
from nicegui.events import ValueChangeEventArguments

from resurgence.ui.elements.live_html import LiveHtml
from resurgence.ui.job_frame import JobPage, job_framed
from resurgence.ui.shown import LogKey
from resurgence.ui.views.markup import Markup, html


def add() -> None:
    @ui.page("/jobs/{name}/logs")
    async def job_logs(request: Request, name: str) -> None:
        async with job_framed(request, name, "logs") as job:
            if job is not None:
                shown = _Log(job)
                await shown.build()
                job.follow(shown.redraw)


class _Log:
    """The end of one worker's log."""

    def __init__(self, job: JobPage) -> None:
        self._job = job
        self._worker = ""
        """Empty: the one that was started last."""
        self._text = ""

    async def build(self) -> None:
        controller = self._job.page.console.controller
        if await controller.owner_elsewhere(self._job.name) is not None:
            LiveHtml(
                html(
                    '<p class="empty">The logs are on the machine of the controller that runs the job.</p>'
                )
            )
        files = await controller.log_files(self._job.name)
        names = {"": "Newest worker", **{file.stem: file.stem for file in reversed(files)}}
        with ui.element("div").classes("tools"):
            ui.input(placeholder="Filter lines").props(
                'outlined dense clearable debounce=300 type=search aria-label="Filter lines"'
            ).classes("find").on_value_change(self._search)
            ui.select(names, value="").props(
                'outlined dense options-dense aria-label="Worker"'
            ).on_value_change(self._choose)
        self._element = LiveHtml(await self._content())

    async def redraw(self) -> None:
        self._element.show(await self._content())

    async def _search(self, event: ValueChangeEventArguments[str | None]) -> None:
        self._text = (event.value or "").strip()
        await self.redraw()

    async def _choose(self, event: ValueChangeEventArguments[str]) -> None:
        self._worker = event.value or ""
        await self.redraw()

    async def _content(self) -> Markup:
        key = LogKey(self._job.name, self._worker, self._text)
        return await self._job.page.console.shown.log.get(key)
