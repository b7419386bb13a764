"""Dialogs, each of which says what an action does before it is done. They are removed once they are
closed, so that a page does not grow with its use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from nicegui import ui

from resurgence.ui.frame import Page


@contextmanager
def opened_dialog(title: str) -> Iterator[ui.dialog]:
    """Open a dialog with what the context builds."""
    with ui.dialog() as dialog, ui.card().classes("dialog"):
        ui.label(title).props("role=heading aria-level=2").style(
            "font-weight:600;font-size:1.05rem"
        )
        yield dialog
    dialog.on("hide", dialog.delete)
    dialog.open()


def choice(
    page: Page, dialog: ui.dialog, text: str, act: Callable[[], Awaitable[None]], kind: str = ""
) -> ui.button:
    """Return a button that closes the dialog and acts."""

    async def chosen() -> None:
        dialog.close()
        # The dialog is removed meanwhile, and with it the place of its button.
        with page.client:
            await act()

    return button(text, chosen, kind)


def ending(
    page: Page,
    dialog: ui.dialog,
    text: str,
    act: Callable[[], Awaitable[None]],
    kind: str = "strong",
) -> ui.button:
    """End a dialog with the choice to cancel or to act; return the button that acts."""
    with ui.element("div").classes("row-end"):
        button("Cancel", dialog.close)
        return choice(page, dialog, text, act, kind)


def button(text: str, action: Callable[[], object], kind: str = "") -> ui.button:
    """Return a button in the style of the console."""
    return (
        ui.button(text, on_click=action, color=None).props("flat no-caps").classes(f"plain {kind}")
    )
