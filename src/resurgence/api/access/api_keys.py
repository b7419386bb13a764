"""API keys: `rsg_<name>_<random>`, shown once, stored as a digest.

The random part has 256 bits, so a plain SHA-256 suffices: slow hashes protect passwords, which can
be guessed. A reader of the database cannot use the stored digests.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from datetime import datetime

from resurgence.control.store.metadata import ApiKey, KeyRole
from resurgence.errors import ConfigError

PREFIX = "rsg"
_RANDOM_BYTES = 32
_RANDOM_TEXT = re.compile(r"[A-Za-z0-9_-]{43,}")
"""That many random bytes in Base64 or in hexadecimal digits."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def new_key(name: str, role: KeyRole, now: datetime) -> tuple[str, ApiKey]:
    """Return a new key, which only its owner receives, and the record to store."""
    _require_name(name)
    text = f"{PREFIX}_{name}_{secrets.token_urlsafe(_RANDOM_BYTES)}"
    return text, ApiKey(name=name, role=role, digest=digest(text), created_at=now)


def imported_key(name: str, role: KeyRole, text: str, now: datetime) -> ApiKey:
    """Return the record to store for a key that its owner generated."""
    _require_name(name)
    random = text.removeprefix(f"{PREFIX}_{name}_")
    if random == text or not _RANDOM_TEXT.fullmatch(random):
        raise ConfigError(
            f"key '{name}' does not have the form of an API key",
            hint=f"Write {PREFIX}_{name}_ and 32 random bytes as text, for example "
            f'`echo "{PREFIX}_{name}_$(openssl rand -hex 32)"`.',
        )
    return ApiKey(name=name, role=role, digest=digest(text), created_at=now)


def _require_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"invalid key name '{name}'",
            hint="Use lower-case letters, digits and '-', starting with a letter or digit.",
        )


def digest(text: str) -> str:
    """Return the digest that is stored for a key."""
    return hashlib.sha256(text.encode()).hexdigest()


def matching_key(text: str, keys: Iterable[ApiKey]) -> ApiKey | None:
    """Return the key with this text, or None. Compare all keys, each in constant time."""
    presented = digest(text)
    found = None
    for key in keys:
        if hmac.compare_digest(key.digest, presented):
            found = key
    return found
