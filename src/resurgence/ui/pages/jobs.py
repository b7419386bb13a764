"""The list of jobs, with a filter and the actions on each."""

from __future__ import annotations

from dataclasses import replace

from fastapi import Request
from nicegui import ui
from nicegui.events import ValueChangeEventArguments

from resurgence.errors import ResurgenceError
from resurgence.ui.elements.live_html import LiveHtml
from resurgence.ui.frame import Page, framed, show_failure
from resurgence.ui.pages.job_actions import job_menu
from resurgence.ui.views.jobs import GROUPS, JobsKey
from resurgence.ui.views.markup import html


def add() -> None:
    @ui.page("/")
    async def jobs_page(request: Request) -> None:
        with framed(request, "Jobs", "/") as page:
            new = html('<a class="button strong" href="/new">New job</a>')
            LiveHtml(html("<h1>Jobs</h1>{}", new if page.may_create else "")).classes("head spread")
            shown = _List(page)
            try:
                await shown.build()
            except ResurgenceError as error:
                show_failure(error)
                return
            page.follow(shown.redraw)


class _List:
    """The part of the list that a page shows."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._key = JobsKey(may_write=page.visitor.may_write)

    async def build(self) -> None:
        first = await self._page.console.shown.jobs.get(self._key)
        with ui.element("div").classes("tools"):
            ui.input(placeholder="Filter jobs").props(
                'outlined dense clearable debounce=250 type=search aria-label="Filter jobs"'
            ).classes("find").on_value_change(self._search)
            self._groups = LiveHtml(first.groups, self._act)
        self._table = LiveHtml(first.table, self._act)

    async def redraw(self) -> None:
        """Show what there is now; keep what is shown if that is not known."""
        try:
            now = await self._page.console.shown.jobs.get(self._key)
        except ResurgenceError:
            return
        self._groups.show(now.groups)
        self._table.show(now.table)

    async def _search(self, event: ValueChangeEventArguments[str | None]) -> None:
        self._key = replace(self._key, text=event.value or "", page=0)
        await self.redraw()

    async def _act(self, facts: dict[str, str]) -> None:
        match facts["action"]:
            case "menu":
                await job_menu(self._page, facts["job"], self.redraw)
            case "group" if facts["value"] in GROUPS:
                self._key = replace(self._key, group=facts["value"], page=0)
                await self.redraw()
            case "page":
                self._key = replace(self._key, page=max(0, int(facts["value"])))
                await self.redraw()
