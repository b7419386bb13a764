"""Sessions of the console: a signed cookie that refers to an API key.

The cookie holds the name of the key, a proof of which key of that name it was, and when the session
ends; neither the key nor the digest that is stored for it. A session ends with its key: whoever
asks looks the key up again. Pure: keys and `now` are arguments.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from resurgence.control.store.metadata import ApiKey

COOKIE = "resurgence_session"
LIFETIME = timedelta(hours=12)


@dataclass(frozen=True)
class Session:
    """A login: with which key, and until when."""

    id: str
    key: str
    proof: str
    """Differs between keys of the same name."""
    ends_at: int
    """In seconds since 1970."""


class SessionSigner:
    """Issues and reads cookies. Only cookies with its own signature are accepted."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def cookie_for(self, key: ApiKey, now: datetime) -> str:
        """Return the cookie of a new session."""
        ends_at = int((now + LIFETIME).timestamp())
        facts = [secrets.token_urlsafe(16), key.name, _proof(key), ends_at]
        content = _text(json.dumps(facts).encode())
        return f"{content}.{self._signature(content)}"

    def session_of(self, cookie: str | None, now: datetime) -> Session | None:
        """Return the session of a cookie; None if it has ended, or was not issued here."""
        content, _, signature = (cookie or "").partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(content).encode()):
            return None
        session = Session(*json.loads(base64.urlsafe_b64decode(content)))
        return session if session.ends_at > now.timestamp() else None

    def _signature(self, content: str) -> str:
        return _text(hmac.digest(self._secret, content.encode(), "sha256"))


def key_of(session: Session | None, keys: Iterable[ApiKey]) -> ApiKey | None:
    """Return the key of a session; None if it was removed, also if another has its name now."""
    if session is None:
        return None
    for key in keys:
        if key.name == session.key and hmac.compare_digest(_proof(key), session.proof):
            return key
    return None


def _proof(key: ApiKey) -> str:
    return hashlib.sha256(f"session {key.digest}".encode()).hexdigest()[:32]


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()
