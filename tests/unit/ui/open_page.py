"""A page that is open in a client without a browser: it sends the messages that a browser sends, over
a real WebSocket, also those for which the page shows no button.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import socketio  # type: ignore[import-untyped]
from nicegui import ui
from nicegui.client import Client
from nicegui.element import Element
from tests.unit.ui.conftest import Console
from tests.unit.ui.test_console_gate import page_id

from resurgence.ui.access.sessions import COOKIE
from resurgence.ui.elements.live_html import LiveHtml

DEADLINE = 60.0


class OpenPage:
    """One open page. The server runs in this process, so its elements can be found."""

    def __init__(self, id: str, cookie: str, sio: socketio.AsyncClient) -> None:
        self.id = id
        self._cookie = cookie
        self._sio = sio
        self.sent: list[tuple[str, Any]] = []
        """What the server sent: kinds of messages, and their contents."""

    @property
    def is_open(self) -> bool:
        return self.id in Client.instances

    @property
    def elements(self) -> list[Element]:
        return [*Client.instances[self.id].elements.values()]

    @property
    def markup(self) -> str:
        """All that the page shows as markup."""
        return "".join(each._props["html"] for each in self.elements if isinstance(each, LiveHtml))

    def buttons(self, text: str) -> list[ui.button]:
        return [each for each in self.elements if isinstance(each, ui.button) and each.text == text]

    async def act(self, **facts: str) -> None:
        """Send an action to every element that takes actions, as a forged page might."""
        for each in self.elements:
            if isinstance(each, LiveHtml):
                await self.send(each, "act", facts)

    async def click(self, text: str) -> None:
        """Click the newest button with a text, as soon as there is one."""
        await self.until(lambda: bool(self.buttons(text)))
        await self.send(self.buttons(text)[-1], "click", {})

    async def close_dialog(self) -> None:
        for each in self.elements:
            if isinstance(each, ui.dialog):
                await self.send(each, "hide", {})

    async def hear(self, kind: str, text: str) -> None:
        """Wait for a message of a kind that contains a text."""
        await self.until(
            lambda: any(each == kind and text in json.dumps(what) for each, what in self.sent)
        )

    async def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not holds():
            assert time.monotonic() < deadline, self.sent
            await asyncio.sleep(0.02)

    def log_out(self, console: Console) -> None:
        with console.client() as client:
            client.cookies.set(COOKIE, self._cookie)
            client.post("/logout", headers=console.origin)

    async def send(self, element: Element, kind: str, args: object) -> None:
        for listener in [*element._event_listeners.values()]:
            if listener.type == kind:
                message = {
                    "id": element.id,
                    "client_id": self.id,
                    "listener_id": listener.id,
                    "args": [json.dumps(args)],
                }
                await self._sio.emit("event", message)


@asynccontextmanager
async def opened(console: Console, key: str, path: str) -> AsyncIterator[OpenPage]:
    """A page in a session of its own."""
    with console.logged_in(key) as client:
        found = client.get(path)
        assert found.status_code == 200, path
        id, cookie = page_id(found.text), client.cookies[COOKIE]
    sio = socketio.AsyncClient(reconnection=False)
    page = OpenPage(id, cookie, sio)

    async def note(kind: str, what: object) -> None:
        page.sent.append((kind, what))

    sio.on("*", note)
    query = f"client_id={id}&implicit_handshake=true&tab_id=t&document_id=d&next_message_id=0"
    await sio.connect(
        f"{console.url}?{query}",
        headers={"Cookie": f"{COOKIE}={cookie}", "Origin": console.url},
        transports=["websocket"],
        socketio_path="/_nicegui_ws/socket.io",
        wait_timeout=30,
    )
    try:
        yield page
    finally:
        await sio.disconnect()
