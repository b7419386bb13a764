"""The frame of a job's pages: its title, state, actions and tabs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import Request
from nicegui import ui

from resurgence.control.controller import JobView
from resurgence.control.store.metadata import NoSuchJob
from resurgence.errors import ResurgenceError
from resurgence.ids import JobName
from resurgence.ui.elements.live_html import LiveHtml
from resurgence.ui.frame import Page, framed, show_failure
from resurgence.ui.pages.job_actions import (
    delete_dialog,
    rescale_dialog,
    restart_dialog,
    start,
    stop_dialog,
)
from resurgence.ui.shown import HeadKey
from resurgence.ui.views.job import TABS

_DIALOGS = {
    "start": start,
    "stop": stop_dialog,
    "restart": restart_dialog,
    "rescale": rescale_dialog,
    "delete": delete_dialog,
}


@dataclass(frozen=True)
class JobPage:
    """An open page of a job."""

    page: Page
    name: JobName
    view: JobView
    """When the page was opened."""

    async def now(self) -> JobView:
        """Return the job as it is now."""
        return await self.page.console.feeds.job.get(self.name)

    def follow(self, redraw: Callable[[], Awaitable[None]], every: float = 2.0) -> None:
        """Call `redraw` every few seconds; keep what is shown if it fails."""

        async def safely() -> None:
            try:
                await redraw()
            except ResurgenceError:
                return

        self.page.follow(safely, every)


@asynccontextmanager
async def job_framed(request: Request, name: str, tab: str) -> AsyncIterator[JobPage | None]:
    """Build the frame of a job's page around its content; yield None if there is no such job. An
    error of the content is shown in its place.
    """
    with framed(request, f"{name} · {TABS[tab]}", "/") as page:
        key = HeadKey(
            name, tab, page.visitor.may_write, only_stop=page.console.controller.can_only_stop
        )
        try:
            view = await page.console.feeds.job.get(name)
            shown = await page.console.shown.head.get(key)
        except ResurgenceError as error:
            show_failure(error)
            yield None
            return

        async def redraw() -> None:
            try:
                fresh = await page.console.shown.head.get(key)
            except NoSuchJob:
                ui.navigate.to("/")
                return
            except ResurgenceError:
                # What is shown stays while the job cannot be read.
                return
            head.show(fresh)

        async def act(facts: dict[str, str]) -> None:
            await _DIALOGS[facts["action"]](page, name, redraw)

        head = LiveHtml(shown, act)
        page.follow(redraw)
        try:
            yield JobPage(page, JobName(name), view)
        except ResurgenceError as error:
            show_failure(error)
