"""Markup that changes in place: focus, selection and scrolling stay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui.element import Element
from nicegui.events import GenericEventArguments

from resurgence.ui.views.markup import Markup

Act = Callable[[dict[str, str]], Awaitable[None]]


class LiveHtml(Element, component="live_html.js"):
    """Shows markup. `act` is called with the data attributes of a `[data-action]` that is
    clicked, or activated by keyboard.
    """

    def __init__(self, markup: Markup, act: Act | None = None) -> None:
        super().__init__()
        self._props["html"] = markup
        self._update_method = "show"
        if act is not None:

            async def handle(event: GenericEventArguments) -> None:
                await act({str(key): str(each) for key, each in dict(event.args).items()})

            self.on("act", handle)

    def show(self, markup: Markup) -> None:
        """Replace the markup, if it differs."""
        if markup is not self._props["html"] and markup != self._props["html"]:
            self._props["html"] = markup
            self.update()
