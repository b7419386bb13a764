"""API keys: `rsg_<name>_<random>`, shown once, kept as a digest.

The random part has 256 bits, so a plain SHA-256 is right: slow hashes are for passwords, which can
be guessed, and there is nothing to guess here. Whoever reads the database cannot use what is in it.
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
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def new_key(name: str, role: KeyRole, now: datetime) -> tuple[str, ApiKey]:
    """The key as its owner gets it, once, and the record of it."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"'{name}' cannot be the name of a key",
            hint="use small letters, digits and '-', beginning with a letter or digit",
        )
    text = f"{PREFIX}_{name}_{secrets.token_urlsafe(_RANDOM_BYTES)}"
    return text, ApiKey(name=name, role=role, digest=digest(text), created_at=now)


def digest(text: str) -> str:
    """What is kept of a key."""
    return hashlib.sha256(text.encode()).hexdigest()


def matching_key(text: str, keys: Iterable[ApiKey]) -> ApiKey | None:
    """The key that was presented. All are looked at, each in constant time."""
    presented = digest(text)
    found = None
    for key in keys:
        if hmac.compare_digest(key.digest, presented):
            found = key
    return found
