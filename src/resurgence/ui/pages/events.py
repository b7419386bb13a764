"""Events: of one job, or of all; filtered, paged in the database, followed live."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui
from nicegui.events import ValueChangeEventArguments

from resurgence.errors import ResurgenceError
from resurgence.ui.console import Console
from resurgence.ui.elements.live_html import LiveHtml
from resurgence.ui.frame import framed, show_failure
from resurgence.ui.job_frame import job_framed
from resurgence.ui.views.events import KINDS, EventsKey
from resurgence.ui.views.lists import chips
from resurgence.ui.views.markup import Markup, html


def add() -> None:
    @ui.page("/events")
    async def all_events(request: Request) -> None:
        with framed(request, "Events", "/events") as page:
            LiveHtml(html('<h1>Events</h1><span class="dim">of all jobs</span>')).classes("head")
            shown = _List(page.console, "")
            try:
                await shown.build()
            except ResurgenceError as error:
                show_failure(error)
                return
            page.follow(shown.redraw)

    @ui.page("/jobs/{name}/events")
    async def job_events(request: Request, name: str) -> None:
        async with job_framed(request, name, "events") as job:
            if job is not None:
                shown = _List(job.page.console, name)
                await shown.build()
                job.follow(shown.redraw)


class _List:
    """A page of events. The newest page follows what happens."""

    def __init__(self, console: Console, job: str) -> None:
        self._console = console
        self._job = job
        self._text = ""
        self._kind = ""
        self._before = [0]
        """The ids before which the shown page and those before it begin."""

    async def build(self) -> None:
        with ui.element("div").classes("tools"):
            ui.input(placeholder="Filter events").props(
                'outlined dense clearable debounce=300 type=search aria-label="Filter events"'
            ).classes("find").on_value_change(self._search)
            self._kinds = LiveHtml(chips(KINDS, None, self._kind), self._act)
        self._element = LiveHtml(await self._content(), self._act)

    async def redraw(self) -> None:
        self._kinds.show(chips(KINDS, None, self._kind))
        self._element.show(await self._content())

    async def _search(self, event: ValueChangeEventArguments[str | None]) -> None:
        self._text, self._before = (event.value or "").strip(), [0]
        await self.redraw()

    async def _act(self, facts: dict[str, str]) -> None:
        match facts["action"]:
            case "group":
                self._kind, self._before = facts["value"], [0]
            case "older":
                self._before.append(int(facts["value"]))
            case "newer" if len(self._before) > 1:
                self._before.pop()
        await self.redraw()

    async def _content(self) -> Markup:
        key = EventsKey(self._job, self._before[-1], self._kind, self._text)
        return await self._console.shown.events.get(key)
