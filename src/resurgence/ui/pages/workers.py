"""The worker processes of the service, and their executors."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from resurgence.errors import ResurgenceError
from resurgence.ui.elements.live_html import LiveHtml
from resurgence.ui.frame import Page, framed, show_failure
from resurgence.ui.views.markup import Markup, html
from resurgence.ui.views.workers import elsewhere_note, workers_panel


def add() -> None:
    @ui.page("/workers")
    async def workers_page(request: Request) -> None:
        with framed(request, "Workers", "/workers") as page:
            LiveHtml(html("<h1>Workers</h1>")).classes("head")
            try:
                shown = LiveHtml(await _content(page))
            except ResurgenceError as error:
                show_failure(error)
                return

            async def redraw() -> None:
                shown.show(await _content(page))

            page.follow(redraw)


async def _content(page: Page) -> Markup:
    workers = await page.console.feeds.workers.get(None)
    others = page.console.controller.other_controllers()
    return html("{}{}", workers_panel(workers), elsewhere_note(len(others)))
