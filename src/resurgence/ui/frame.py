"""The frame of every page: header, navigation, theme; and how pages follow what they show."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fastapi import Request
from nicegui import app, ui
from nicegui.client import Client

from resurgence.errors import ResurgenceError
from resurgence.ui.access.console_gate import VISITOR
from resurgence.ui.access.visitor import SessionEnded, Visitor
from resurgence.ui.console import Console
from resurgence.ui.elements.live_html import LiveHtml
from resurgence.ui.views.frame import error_alert, header

_ASSETS = Path(__file__).parent / "assets"
_THEME_COOKIE = "resurgence_theme"
_DARK = {"light": False, "dark": True}
_TICK = 2.0


@dataclass(frozen=True)
class Page:
    """One open page."""

    console: Console
    visitor: Visitor
    client: Client

    @property
    def may_create(self) -> bool:
        """Whether the visitor may create jobs here."""
        return self.visitor.may_write and not self.console.controller.can_only_stop

    async def change(self, request: Callable[[], Awaitable[object]], done: str = "") -> bool:
        """Perform a request that changes something, if the visitor may still do so. Show its error.
        Return whether it succeeded.
        """
        try:
            visitor = await self.console.doorkeeper.again(self.visitor)
            visitor.require_write()
            await request()
        except SessionEnded:
            ui.navigate.reload()
            return False
        except ResurgenceError as error:
            show_error(error)
            return False
        if done:
            ui.notify(done, position="bottom-right")
        return True

    def follow(self, redraw: Callable[[], Awaitable[None]], every: float = _TICK) -> None:
        """Call `redraw` every few seconds while the page is open."""
        ui.timer(every, redraw, immediate=False)


def show_error(error: ResurgenceError) -> None:
    """Show the message and the hint of an error."""
    ui.notify(
        error.message,
        caption=error.hint or None,
        type="negative",
        position="bottom-right",
        timeout=10_000,
        close_button="Close",
    )


@contextmanager
def framed(request: Request, title: str, at: str = "") -> Iterator[Page]:
    """Build the frame of a page around its content. `at` is its entry in the navigation."""
    visitor = request.scope[VISITOR]
    page = Page(app.state.console, visitor, ui.context.client)
    theme = request.cookies.get(_THEME_COOKIE, "auto")
    ui.page_title(f"{title} · Resurgence")
    ui.add_head_html(_head(theme))
    dark = ui.dark_mode(_DARK.get(theme))

    async def act(facts: dict[str, str]) -> None:
        if facts["action"] == "theme":
            chosen = facts["theme"]
            dark.set_value(_DARK.get(chosen))
            # The choice is one of this page's own words.
            word = chosen if chosen in _DARK else "auto"
            ui.run_javascript(
                f'document.cookie = "{_THEME_COOKIE}={word}; path=/; max-age=31536000; '
                'samesite=strict"; setTheme("' + word + '")'
            )
            bar.show(header(at, visitor, word, may_create=page.may_create))

    bar = (
        LiveHtml(header(at, visitor, theme, may_create=page.may_create), act)
        .classes("bar")
        .props("role=banner")
    )
    with ui.element("main").classes("page").props("id=content tabindex=-1"):
        yield page


def show_failure(error: ResurgenceError) -> None:
    """Show an error in the place of a page's content."""
    LiveHtml(error_alert(error.message, error.hint))


def _head(theme: str) -> str:
    word = theme if theme in _DARK else "auto"
    style = _ASSETS / "console.css"
    version = hashlib.sha256(style.read_bytes()).hexdigest()[:12]
    return (
        f'<link rel="stylesheet" href="/_nicegui/resurgence/console.css?v={version}">'
        "<script>"
        'const darkQuery = matchMedia("(prefers-color-scheme: dark)");'
        "let themeWord;"
        "function setTheme(word) { themeWord = word; document.documentElement.dataset.theme ="
        ' word === "auto" ? (darkQuery.matches ? "dark" : "light") : word; }'
        'darkQuery.addEventListener("change", () => setTheme(themeWord));'
        f'setTheme("{word}");'
        "</script>"
    )
