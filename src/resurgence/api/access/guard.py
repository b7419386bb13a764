"""The access rules, applied before a request body is read.

The guard does no I/O: it decides from facts about a request, which `gate` collects.

- Host names. On the loopback address the threat is a browser: a page of another site may resolve
  its own name to 127.0.0.1 (revealed by `Host`) or post a form to the service (revealed by
  `Origin`). Both are refused.
- Keys. Required as soon as one exists, and always when the service listens beyond this machine.
- Roles. `read` allows reading, `write` allows everything. A query is a POST, because it may be long and
  may contain what no log should have, but it reads. A writer can run code: SQL and Python
  functions run as the user of the service.
- Failed logins. Limited per minute and address. A valid key is never refused because of invalid
  keys from the same address: 256 random bits cannot be guessed, and many users may share an
  address. All other rate limits are left to a reverse proxy.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from resurgence.api.access.api_keys import matching_key
from resurgence.api.error_answer import Refusal
from resurgence.control.store.metadata import ApiKey, KeyRole

FAILED_LOGINS = 20
"""Maximum per minute and address."""
OPEN_PATHS = frozenset({"/health", "/ready", "/docs", "/openapi.json"})
"""Paths that require no key: health, readiness and the description of the API."""
_READ_METHODS = frozenset({"GET", "HEAD"})
_QUERY_PATH = re.compile(r"/v1/jobs/[^/]+/dead-letters/query")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class RequestFacts:
    """The facts about a request that the guard checks."""

    method: str
    path: str
    address: str
    host: str | None
    origin: str | None
    authorization: str | None


def is_loopback(host: str) -> bool:
    """Return whether a listen address is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass
class Guard:
    """Admits or refuses requests. `host` is the address that the service listens on."""

    host: str = "127.0.0.1"
    failed_logins: int = FAILED_LOGINS
    _minute: float = 0
    _failures: Counter[str] = field(default_factory=Counter)
    """Failed logins of the current minute, by address."""

    @property
    def key_is_required(self) -> bool:
        """Whether a key is required even if none exists."""
        return not is_loopback(self.host)

    def admit(self, request: RequestFacts, keys: Sequence[ApiKey], now: float) -> None:
        """Raise `Refusal` unless the request is admitted. `now`: seconds of a monotonic clock."""
        self.require_own_host(request)
        key = None
        if (keys or self.key_is_required) and request.path not in OPEN_PATHS:
            key = self.authenticate(request, keys, now)
        if key and key.role is not KeyRole.WRITE and not _only_reads(request):
            raise Refusal(
                403,
                "auth.forbidden",
                f"key '{key.name}' may only read",
                hint="Use a key with the role write.",
            )

    def require_own_host(self, request: RequestFacts) -> None:
        """Raise `Refusal` if a page of another site may have caused the request."""
        if is_loopback(self.host) and not (
            request.host and _host_name(request.host) in _LOOPBACK_NAMES | {self.host}
        ):
            raise Refusal(
                403,
                "auth.host",
                "the Host header does not name this machine",
                hint="Use localhost or 127.0.0.1 in the URL.",
            )
        if request.origin is not None and _origin_host(request.origin) != request.host:
            raise Refusal(403, "auth.origin", "requests from pages of another origin are refused")

    def authenticate(self, request: RequestFacts, keys: Sequence[ApiKey], now: float) -> ApiKey:
        """Return the key of a request. Raise `Refusal` without a valid one, and count it."""
        scheme, _, text = (request.authorization or "").partition(" ")
        key = matching_key(text.strip(), keys) if scheme.lower() == "bearer" else None
        if key is not None:
            return key
        self._count_failure(_network(request.address), now)
        raise Refusal(
            401,
            "auth.required",
            "unknown API key" if request.authorization else "an API key is required",
            hint="Send 'Authorization: Bearer KEY'. Create a key with `resurgence keys create`.",
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
                hint="Retry after the seconds in Retry-After.",
                headers={"Retry-After": str(math.ceil(60 - now % 60))},
            )


def _only_reads(request: RequestFacts) -> bool:
    if request.method == "POST":
        return _QUERY_PATH.fullmatch(request.path) is not None
    return request.method in _READ_METHODS


def _host_name(host: str) -> str:
    """Return the name in a `Host` header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _network(address: str) -> str:
    """Return the addresses that count as one client: with IPv6, a whole /64."""
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
