"""Decides who may open the pages of the console: reads sessions, and ends them.

The rules about host names, origins and failed logins are those of the API's guard.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

from resurgence.api.access.guard import Guard, RequestFacts
from resurgence.api.access.key_ring import KeyRing
from resurgence.control.store.metadata import KeyRole
from resurgence.ui.access.logouts import Logouts
from resurgence.ui.access.sessions import Session, SessionSigner, key_of
from resurgence.ui.access.visitor import SessionEnded, Visitor


class Doorkeeper:
    """Sessions over the API keys of a service."""

    def __init__(
        self, guard: Guard, ring: KeyRing, signer: SessionSigner, logouts: Logouts
    ) -> None:
        self.guard = guard
        self._ring = ring
        self._signer = signer
        self._logouts = logouts

    async def visitor(self, cookie: str | None) -> Visitor | None:
        """Return who sends a cookie; None if they must log in."""
        return await self._visitor(self._signer.session_of(cookie, datetime.now(UTC)))

    async def again(self, visitor: Visitor) -> Visitor:
        """Return what a visitor may do now; raise SessionEnded if their session has ended."""
        session = visitor.session
        if session is not None and session.ends_at <= time.time():
            session = None
        found = await self._visitor(session)
        if found is None:
            raise SessionEnded("the session has ended", hint="Log in again.")
        return found

    async def _visitor(self, session: Session | None) -> Visitor | None:
        keys = await self._ring.keys()
        if not keys and not self.guard.key_is_required:
            return Visitor(None, "", may_write=True)
        key = key_of(session, keys)
        if key is None or session is None or session.id in self._logouts:
            return None
        return Visitor(session, key.name, may_write=key.role is KeyRole.WRITE)

    async def log_in(self, request: RequestFacts) -> str:
        """Return the cookie of a new session. Raise Refusal unless the request has a valid key."""
        key = self.guard.authenticate(request, await self._ring.keys(), time.monotonic())
        return self._signer.cookie_for(key, datetime.now(UTC))

    def log_out(self, cookie: str | None) -> None:
        """End a session, also where it is open in other pages."""
        now = datetime.now(UTC)
        session = self._signer.session_of(cookie, now)
        if session is not None:
            self._logouts.add(session.id, session.ends_at, now.timestamp())
