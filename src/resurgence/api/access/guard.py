"""Who may ask what: the rules at the door, before any request is read.

Facts about a request go in, a refusal or a client comes out; `gate` does the I/O around it.

- Names of this machine. On the loopback address a browser is the danger: a page from elsewhere may
  have its own name resolve to 127.0.0.1 (then `Host` gives it away) or may post a form to us (then
  `Origin` does). Neither gets in.
- Keys. Needed as soon as one exists, and always when the service listens beyond this machine.
- Roles. `read` may look, `write` may do all. A writer can run code: SQL and Python functions run
  as the user of the service.
- Failed logins. So many a minute from an address; then it must wait. A right key is never refused
  because of someone else's wrong ones: with 256 random bits no one guesses it, while many users may
  share an address. All other rates are for a reverse proxy to bound.
"""

from __future__ import annotations

import ipaddress
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from resurgence.api.access.api_keys import matching_key
from resurgence.api.error_answer import Refusal
from resurgence.control.store.metadata import ApiKey, KeyRole

FAILED_LOGINS = 20
"""In a minute, from one address."""
OPEN_PATHS = frozenset({"/health", "/ready", "/docs", "/openapi.json"})
"""No key is needed to see whether the service is alive and ready, and how its API looks."""
_READING = frozenset({"GET", "HEAD"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Asking:
    """What the guard looks at in a request."""

    method: str
    path: str
    address: str
    host: str | None
    origin: str | None
    authorization: str | None


def is_loopback(host: str) -> bool:
    """Whether an address or a name to listen on is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass
class Guard:
    """Decides over each request. `host` is what the service listens on."""

    host: str = "127.0.0.1"
    failed_logins: int = FAILED_LOGINS
    _minute: float = 0
    _failures: Counter[str] = field(default_factory=Counter)
    """Failed logins of this minute, by address."""

    @property
    def key_is_required(self) -> bool:
        """Whether a key is needed although none may exist."""
        return not is_loopback(self.host)

    def admit(self, asking: Asking, keys: Sequence[ApiKey], now: float) -> None:
        """Let a request in, or raise a `Refusal`. `now` is in seconds of a monotonic clock."""
        self._require_own_name(asking)
        key = None
        if (keys or self.key_is_required) and asking.path not in OPEN_PATHS:
            key = self._authenticate(asking, keys, now)
        if key and key.role is not KeyRole.WRITE and asking.method not in _READING:
            raise Refusal(
                403,
                "auth.forbidden",
                f"the key '{key.name}' may only read",
                hint="use a key with the role write",
            )

    def _require_own_name(self, asking: Asking) -> None:
        if is_loopback(self.host) and not (
            asking.host and _name(asking.host) in _LOOPBACK_NAMES | {self.host}
        ):
            raise Refusal(
                403,
                "auth.host",
                "this service answers to the names of this machine only",
                hint="ask for it as localhost or 127.0.0.1",
            )
        if asking.origin is not None and _origin_host(asking.origin) != asking.host:
            raise Refusal(
                403, "auth.origin", "pages of another origin may not ask anything of this service"
            )

    def _authenticate(self, asking: Asking, keys: Sequence[ApiKey], now: float) -> ApiKey:
        scheme, _, text = (asking.authorization or "").partition(" ")
        key = matching_key(text.strip(), keys) if scheme.lower() == "bearer" else None
        if key is not None:
            return key
        self._count_failure(_network(asking.address), now)
        raise Refusal(
            401,
            "auth.required",
            "the API key is not known" if asking.authorization else "an API key is needed",
            hint="send 'Authorization: Bearer KEY'; `resurgence keys create` makes one",
            headers={"WWW-Authenticate": 'Bearer realm="resurgence"'},
        )

    def _count_failure(self, address: str, now: float) -> None:
        if now // 60 != self._minute:
            self._minute = now // 60
            self._failures.clear()
        self._failures[address] += 1
        if self._failures[address] > self.failed_logins:
            raise Refusal(
                429,
                "limit.rate",
                "too many requests without a valid key",
                hint="ask again after the seconds in Retry-After",
                headers={"Retry-After": str(math.ceil(60 - now % 60))},
            )


def _name(host: str) -> str:
    """The name in a `Host` header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _network(address: str) -> str:
    """Whom an address stands for: with IPv6 one client has a whole /64."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def _origin_host(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
