"""Where the files of an Iceberg table are: locations as Iceberg writes them, and our stores."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from resurgence.errors import UserError
from resurgence.storage.access import StoreAccess, store_access
from resurgence.storage.object_store import ObjectStore, task_store

_VENDED = {
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
    "s3.endpoint": "AWS_ENDPOINT",
    "s3.region": "AWS_REGION",
    "client.region": "AWS_REGION",
}
"""The names of a REST catalog for what it vends with a table, and ours."""


def split_location(location: str) -> tuple[str, str]:
    """Split a location into the URL of a store and the path of an object in it. Java's `file:/path`
    and a plain path are on the local disk.
    """
    parts = urlsplit(location)
    if len(parts.scheme) <= 1 or parts.scheme == "file":
        path = parts.path if parts.scheme == "file" else location
        return "file:///", path.lstrip("/")
    scheme = {"s3n": "s3", "s3a": "s3"}.get(parts.scheme, parts.scheme)
    if not parts.netloc:
        raise UserError(
            f"location {location} names no bucket", hint="Check the location of the table."
        )
    return f"{scheme}://{parts.netloc}", parts.path.lstrip("/")


def vended_access(url: str, properties: Mapping[str, str]) -> StoreAccess:
    """Return the access to a store: as this process has it, with what a catalog vends."""
    access = store_access(url)
    if not url.startswith("s3:"):
        return access
    vended = {ours: properties[name] for name, ours in _VENDED.items() if properties.get(name)}
    options = dict(access.options)
    if "AWS_ACCESS_KEY_ID" in vended:
        # Credentials belong together.
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            options.pop(name, None)
    options |= vended
    return StoreAccess(access.url, tuple(sorted(options.items())), access.deadlines)


def located_store(location: str, properties: Mapping[str, str]) -> tuple[ObjectStore, str]:
    """Return the store of a location, and the path in it."""
    url, path = split_location(location)
    return task_store(vended_access(url, properties)), path
