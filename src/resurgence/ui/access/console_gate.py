"""The outermost layer of the application: the pages of the console, beside the API.

Requests for the console are recognised by their path; all others go on to the API, unchanged. It
applies the guard's rules about hosts and origins, requires a session, and adds the security
headers. A WebSocket is accepted only from a page of this service, with the session of that page.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from resurgence.api.access.gate import facts_of
from resurgence.api.error_answer import Refusal, failure_of
from resurgence.errors import ResurgenceError
from resurgence.ui.access.doorkeeper import Doorkeeper
from resurgence.ui.access.login_page import arriving_page, login_page
from resurgence.ui.access.security_headers import headers, with_nonce
from resurgence.ui.access.sessions import COOKIE, LIFETIME
from resurgence.ui.access.visitor import Visitor

VISITOR = "resurgence.visitor"
"""Where the scope of a page's request has its visitor."""
_CONSOLE = re.compile(
    r"/|/(?:jobs|incidents|events|workers|new|login|logout|favicon\.ico|_nicegui\w*)(?:/.*)?"
)
_ASSETS = ("/_nicegui/", "/favicon.ico")
_SOCKET = "/_nicegui_ws/"
_MOST_LOGIN_BYTES = 4096
_LOG = logging.getLogger(__name__)


class ConsoleGate:
    """ASGI middleware. `pages` is the application of the console, `owner_of` returns the visitor of
    an open page by its id.
    """

    def __init__(
        self,
        app: ASGIApp,
        pages: ASGIApp,
        doorkeeper: Doorkeeper,
        owner_of: Callable[[str], Visitor | None],
    ) -> None:
        self._app = app
        self._pages = pages
        self._doorkeeper = doorkeeper
        self._owner_of = owner_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_page = scope["type"] in ("http", "websocket") and _CONSOLE.fullmatch(scope["path"])
        if not is_page:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._connect(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            request = facts_of(scope)
            self._doorkeeper.guard.require_own_host(request)
            visitor = await self._doorkeeper.visitor(_cookie(scope))
            page = parse_qs(scope["query_string"].decode(errors="replace")).get("client_id", [""])
            owner = self._owner_of(page[0])
            is_own = owner is not None and visitor is not None and owner.session == visitor.session
            # A reconnecting page of an earlier process has no owner; NiceGUI makes it reload.
            if request.origin is None or visitor is None or not (is_own or owner is None):
                raise Refusal(403, "auth.origin", "this page may not connect")
        except (Refusal, ResurgenceError):
            await receive()
            await send({"type": "websocket.close", "code": 4403})
            return
        await self._pages(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        nonce = secrets.token_urlsafe(16)
        has_started = False

        async def send_noting(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            response = await self._own_answer(scope, receive)
            if response is None:
                await self._page(scope, receive, send_noting, nonce)
                return
        except Exception as error:
            if has_started:
                # NiceGUI answers an error with a page of its own, and raises it.
                _LOG.exception("page failed: %s", scope["path"])
                return
            failure = failure_of(error)
            if failure.status == 500:
                _LOG.exception("page failed: %s", scope["path"])
            response = PlainTextResponse(
                f"{failure.detail.message}\n{failure.detail.hint}", failure.status, failure.headers
            )
        response.headers["Cache-Control"] = "no-store"
        response.raw_headers += headers(nonce, may_eval=False)
        await response(scope, receive, send)

    async def _own_answer(self, scope: Scope, receive: Receive) -> Response | None:
        """Return the response to what needs no page: logins, refusals; None for a page."""
        request = facts_of(scope)
        self._doorkeeper.guard.require_own_host(request)
        path, method = scope["path"], scope["method"]
        if path in ("/login", "/logout") and method == "POST":
            if request.origin is None:
                raise Refusal(403, "auth.origin", "the request does not name its page")
            if path == "/login":
                return await self._log_in(scope, receive)
            self._doorkeeper.log_out(_cookie(scope))
            response = RedirectResponse("/login", 303)
            response.delete_cookie(COOKIE, httponly=True, samesite="strict")
            return response
        if method not in ("GET", "HEAD"):
            raise Refusal(405, "http.method", "the console has only pages")
        if path.startswith(_SOCKET):
            raise Refusal(403, "auth.origin", "the console needs a WebSocket")
        if path.startswith(_ASSETS):
            return None
        visitor = await self._doorkeeper.visitor(_cookie(scope))
        target = path + (f"?{scope['query_string'].decode()}" if scope["query_string"] else "")
        if path == "/login":
            if visitor is not None:
                return RedirectResponse("/", 303)
            query = parse_qs(scope["query_string"].decode(errors="replace"))
            return HTMLResponse(login_page(_local(query.get("next", ["/"])[0])))
        if visitor is None:
            if Headers(scope=scope).get("sec-fetch-site") == "cross-site":
                return HTMLResponse(arriving_page(target))
            return RedirectResponse(f"/login?next={quote(target, safe='')}", 303)
        scope[VISITOR] = visitor
        return None

    async def _log_in(self, scope: Scope, receive: Receive) -> Response:
        form = parse_qs((await _body(receive)).decode(errors="replace"))
        target = _local(form.get("next", ["/"])[0])
        key = form.get("key", [""])[0].strip()
        request = facts_of(scope, authorization=f"Bearer {key}")
        try:
            cookie = await self._doorkeeper.log_in(request)
        except Refusal as refusal:
            text = (
                "This is not a valid API key." if refusal.status == 401 else refusal.detail.message
            )
            page = login_page(target, text)
            kept = {key: each for key, each in refusal.headers.items() if key == "Retry-After"}
            return HTMLResponse(page, refusal.status, kept)
        response = RedirectResponse(target, 303)
        response.set_cookie(
            COOKIE,
            cookie,
            max_age=int(LIFETIME.total_seconds()),
            httponly=True,
            samesite="strict",
            # Behind a proxy that ends TLS, only the page knows that it was loaded by TLS.
            secure=scope["scheme"] == "https" or urlsplit(request.origin or "").scheme == "https",
        )
        return response

    async def _page(self, scope: Scope, receive: Receive, send: Send, nonce: str) -> None:
        """Let the console answer. The nonce is put into a page, so pages are not compressed."""
        is_asset = scope["path"].startswith(_ASSETS)
        dropped = {b"x-forwarded-prefix"} | (set() if is_asset else {b"accept-encoding"})
        scope["headers"] = [each for each in scope["headers"] if each[0] not in dropped]
        start: Message = {}
        body = bytearray()

        async def send_safely(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                own = [] if is_asset else [(b"cache-control", b"no-store")]
                taken = {b"cache-control"} if own else set()
                before = [each for each in message["headers"] if each[0].lower() not in taken]
                message["headers"] = [*before, *own, *headers(nonce, may_eval=True)]
                start = message
                if is_asset:
                    await send(message)
            elif is_asset:
                await send(message)
            else:
                body.extend(message.get("body", b""))
                if not message.get("more_body"):
                    page = with_nonce(bytes(body), nonce)
                    length = (b"content-length", str(len(page)).encode())
                    others = [each for each in start["headers"] if each[0] != b"content-length"]
                    await send({**start, "headers": [*others, length]})
                    await send({"type": "http.response.body", "body": page})

        await self._pages(scope, receive, send_safely)


def _cookie(scope: Scope) -> str | None:
    try:
        found = SimpleCookie(Headers(scope=scope).get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return found.value if found else None


async def _body(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if len(body) > _MOST_LOGIN_BYTES:
            raise Refusal(413, "limit.size", "the form is too large")
        if message["type"] != "http.request" or not message.get("more_body"):
            return body


def _local(target: str) -> str:
    """Return a path of the console, whatever a link asks for."""
    if not _CONSOLE.fullmatch(urlsplit(target).path) or not re.fullmatch(
        r"/(?![/\\])[^\s\\]*", target
    ):
        return "/"
    return target
