"""The door of the service, around the whole application: the guard's rules, the limit of a body,
and the last net under errors that no one foresaw.

A plain ASGI layer: what it refuses has cost next to nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from datetime import timedelta

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from resurgence.api.access.guard import OPEN_PATHS, Asking, Guard
from resurgence.api.access.key_ring import KeyRing
from resurgence.api.error_answer import Refusal, failure_of

LARGEST_BODY = 4_000_000
_LINGER = timedelta(seconds=2)
_LOG = logging.getLogger(__name__)
_SAFE_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class Gate:
    """Wraps an application; `guard` and `ring` decide who gets through."""

    def __init__(
        self,
        app: ASGIApp,
        guard: Guard,
        ring: KeyRing,
    ) -> None:
        self._app = app
        self._guard = guard
        self._ring = ring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def safely(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                message["headers"] = [*message.get("headers", ()), *_SAFE_HEADERS]
            await send(message)

        try:
            asking = _asking(scope)
            keys = () if asking.path in OPEN_PATHS else await self._ring.keys()
            self._guard.admit(asking, keys, time.monotonic())
            if asking.method not in ("GET", "HEAD"):
                receive = await _read_body(scope, receive)
            await self._app(scope, receive, safely)
        except Exception as error:
            failure = failure_of(error)
            if failure.status == 500:
                _LOG.exception("a request failed: %s %s", scope["method"], scope["path"])
            if not has_begun:
                answer = _lingering(safely, receive) if failure.status == 413 else safely
                await failure.response()(scope, receive, answer)


async def _read_body(scope: Scope, receive: Receive) -> Receive:
    """Read the body, as long as it is not too large; what gives it to the application."""
    length = Headers(scope=scope).get("content-length", "")
    if length.isdigit() and int(length) > LARGEST_BODY:
        raise _too_large()
    body = bytearray()
    message: Message = {}
    while True:
        message = await receive()
        if message["type"] != "http.request":
            break
        body += message.get("body", b"")
        if len(body) > LARGEST_BODY:
            raise _too_large()
        if not message.get("more_body"):
            message = {"type": "http.request", "body": bytes(body), "more_body": False}
            break
    first = [message]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


def _lingering(send: Send, receive: Receive) -> Send:
    """Sends an answer, and ends it once the client has sent what it was sending. A connection that is
    closed with unread input is reset, and the client may never see the answer.
    """

    async def linger(message: Message) -> None:
        if message["type"] != "http.response.body":
            await send(message)
            return
        await send({**message, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER.total_seconds()):
                left = 2 * LARGEST_BODY
                more = True
                while more and left > 0:
                    given = await receive()
                    left -= len(given.get("body", b""))
                    more = given["type"] == "http.request" and given.get("more_body", False)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return linger


def _asking(scope: Scope) -> Asking:
    headers = Headers(scope=scope)
    client = scope.get("client")
    return Asking(
        method=scope["method"],
        path=scope["path"],
        address=client[0] if client else "",
        host=headers.get("host"),
        origin=headers.get("origin"),
        authorization=headers.get("authorization"),
    )


def _too_large() -> Refusal:
    return Refusal(
        413,
        "limit.size",
        f"the body of the request is larger than {LARGEST_BODY:,} bytes",
        headers={"Connection": "close"},
    )
