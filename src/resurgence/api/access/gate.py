"""The outermost layer of the application: it applies the guard's rules, limits the body size, and
answers errors that nothing else handles.

It is a plain ASGI layer, so that refusing a request costs next to nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from datetime import timedelta

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from resurgence.api.access.guard import OPEN_PATHS, Guard, RequestFacts
from resurgence.api.access.key_ring import KeyRing
from resurgence.api.error_answer import Refusal, failure_of

MAX_BODY_BYTES = 4_000_000
_LINGER = timedelta(seconds=2)
_LOG = logging.getLogger(__name__)
_SAFE_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class Gate:
    """ASGI middleware; `guard` and `ring` decide which requests are admitted."""

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
        has_started = False

        async def send_safely(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                message["headers"] = [*message.get("headers", ()), *_SAFE_HEADERS]
            await send(message)

        try:
            request = facts_of(scope)
            keys = () if request.path in OPEN_PATHS else await self._ring.keys()
            self._guard.admit(request, keys, time.monotonic())
            if request.method not in ("GET", "HEAD"):
                receive = await _read_body(scope, receive)
            await self._app(scope, receive, send_safely)
        except Exception as error:
            failure = failure_of(error)
            if failure.status == 500:
                _LOG.exception("request failed: %s %s", scope["method"], scope["path"])
            if not has_started:
                sender = _lingering(send_safely, receive) if failure.status == 413 else send_safely
                await failure.response()(scope, receive, sender)


async def _read_body(scope: Scope, receive: Receive) -> Receive:
    """Read the body and return a receiver that replays it; raise Refusal if it is too large."""
    length = Headers(scope=scope).get("content-length", "")
    if length.isdigit() and int(length) > MAX_BODY_BYTES:
        raise _too_large()
    body = bytearray()
    message: Message = {}
    while True:
        message = await receive()
        if message["type"] != "http.request":
            break
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise _too_large()
        if not message.get("more_body"):
            message = {"type": "http.request", "body": bytes(body), "more_body": False}
            break
    first = [message]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


def _lingering(send: Send, receive: Receive) -> Send:
    """Return a sender that ends the response when the client has sent its body. A connection that
    is closed with unread input is reset, and the client may never see the response.
    """

    async def linger(message: Message) -> None:
        if message["type"] != "http.response.body":
            await send(message)
            return
        await send({**message, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER.total_seconds()):
                left = 2 * MAX_BODY_BYTES
                more = True
                while more and left > 0:
                    incoming = await receive()
                    left -= len(incoming.get("body", b""))
                    more = incoming["type"] == "http.request" and incoming.get("more_body", False)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return linger


def facts_of(scope: Scope, authorization: str | None = None) -> RequestFacts:
    """Return what the guard checks. `authorization`: instead of the header."""
    headers = Headers(scope=scope)
    client = scope.get("client")
    return RequestFacts(
        method=scope.get("method", "GET"),
        path=scope["path"],
        address=client[0] if client else "",
        host=headers.get("host"),
        origin=headers.get("origin"),
        authorization=authorization or headers.get("authorization"),
    )


def _too_large() -> Refusal:
    return Refusal(
        413,
        "limit.size",
        f"request body is larger than {MAX_BODY_BYTES:,} bytes",
        headers={"Connection": "close"},
    )
