"""The worker processes of the service, and their executors."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from resurgence.errors import ResurgenceError
from resurgence.ui.elements.live_html import LiveHtml
from resurgence.ui.frame import framed, show_failure
from resurgence.ui.views.markup import html


def add() -> None:
    @ui.page("/workers")
    async def workers_page(request: Request) -> None:
        with framed(request, "Workers", "/workers") as page:
            LiveHtml(html("<h1>Workers</h1>")).classes("head")
            try:
                shown = LiveHtml(await page.console.shown.workers.get(None))
            except ResurgenceError as error:
                show_failure(error)
                return

            async def redraw() -> None:
                shown.show(await page.console.shown.workers.get(None))

            page.follow(redraw)
