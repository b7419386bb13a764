"""Adds the console to the application of a service.

NiceGUI keeps one application per process, so a process has at most one console at a time. This
module is imported only by who serves a console: NiceGUI takes a second to load.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request

# NiceGUI reads this when it is imported; nothing of it is used.
os.environ.setdefault("NICEGUI_STORAGE_PATH", str(Path(os.devnull).parent / "none"))

from nicegui import app as nicegui_app
from nicegui import core, ui
from nicegui.client import Client

from resurgence.api.access.guard import Guard
from resurgence.api.access.key_ring import KeyRing
from resurgence.control.controller import Controller
from resurgence.ui.access.console_gate import VISITOR, ConsoleGate
from resurgence.ui.access.doorkeeper import Doorkeeper
from resurgence.ui.access.logouts import Logouts
from resurgence.ui.access.sessions import SessionSigner
from resurgence.ui.access.visitor import Visitor
from resurgence.ui.console import Console
from resurgence.ui.end_of_sessions import end_sessions
from resurgence.ui.feeds import Feeds
from resurgence.ui.pages import add_pages
from resurgence.ui.shown import Shown

_RECONNECT_SECONDS = 20.0
_STATIC = "/_nicegui/resurgence"


@asynccontextmanager
async def console_of(
    app: FastAPI,
    controller: Controller,
    guard: Guard,
    ring: KeyRing,
    secret: bytes,
    logouts: Path | None,
) -> AsyncIterator[None]:
    """Serve the console beside an application's own paths, until the context ends. `secret` signs
    the cookies of sessions; `logouts` is the file of those that were logged out.
    """
    doorkeeper = Doorkeeper(guard, ring, SessionSigner(secret), Logouts(logouts))
    feeds = Feeds(controller)
    shown = Shown(feeds, lambda: len(controller.other_controllers()))
    console = Console(controller, doorkeeper, feeds, shown)
    _configure()
    nicegui_app.state.console = console
    app.add_middleware(ConsoleGate, pages=core.app, doorkeeper=doorkeeper, owner_of=owner_of)
    async with core.app.router.lifespan_context(core.app), end_sessions(console):
        yield


def _configure() -> None:
    """Set up NiceGUI, once in a process."""
    if core.app.config.has_run_config:
        return
    logging.getLogger("nicegui").setLevel(logging.ERROR)
    nicegui_app.config.socket_io_js_transports = ["websocket"]
    nicegui_app.config.quasar_config["loadingBar"] = {"skipHijack": True}
    nicegui_app.add_static_files(_STATIC, Path(__file__).parent / "assets")
    add_pages()
    # An application of its own: the gate passes the requests of the console to NiceGUI itself, so
    # that unknown paths of the API stay what they are.
    ui.run_with(
        FastAPI(),
        title="Resurgence",
        favicon=Path(__file__).parent / "assets" / "icon.svg",
        dark=None,
        language="en-US",
        binding_refresh_interval=None,
        reconnect_timeout=_RECONNECT_SECONDS,
        tailwind=False,
        show_welcome_message=False,
    )


def owner_of(page: str) -> Visitor | None:
    """Return the visitor of an open page."""
    client = Client.instances.get(page)
    return visitor_of(client.request) if client is not None else None


def visitor_of(request: Request) -> Visitor | None:
    """Return who a page was built for."""
    visitor = request.scope.get(VISITOR)
    return visitor if isinstance(visitor, Visitor) else None
