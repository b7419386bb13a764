"""Object storage: the only door to durable state.

Owns the translation of obstore's calls and errors. Knows a few verbs and nothing about checkpoints.
Conditional create is the only lock that every object store has. Only `replace` overwrites an object;
nothing that a restore reads is written with it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import LocalStore, from_url
from obstore.store import ObjectStore as _AnyStore

from resurgence.errors import ConfigError, ObjectMissing, StorageError
from resurgence.storage.private_files import make_private_folder


@dataclass(frozen=True, order=True)
class StoredObject:
    """An object as a listing shows it."""

    path: str
    size: int


class ObjectStore:
    """A folder of an object store. Paths are relative to it and use '/'."""

    def __init__(self, url: str, *, private: bool = False) -> None:
        """`private`: a local folder that is missing is created for its owner alone."""
        self.url = url
        scheme, path = split_url(url)
        try:
            if scheme == "file":
                if private:
                    make_private_folder(Path(path))
                # Objects are made readable for all by the umask; a folder left empty is removed
                # with its last object.
                self._store: _AnyStore = LocalStore(prefix=path, automatic_cleanup=True, mkdir=True)
            else:
                self._store = from_url(url)
        except (BaseError, OSError, ValueError) as error:
            raise StorageError(f"cannot open {url}: {_brief(error)}", hint=_HINT) from error

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"

    def create(self, path: str, data: bytes) -> bool:
        """Create the object if it is absent. False: it was there, and was not touched."""
        with _translated("write", self.url, path):
            try:
                obstore.put(self._store, path, data, mode="create")
            except AlreadyExistsError:
                return False
            return True

    def replace(self, path: str, data: bytes) -> None:
        """Write the object, whatever was there: readers see the old bytes or the new ones."""
        with _translated("write", self.url, path):
            obstore.put(self._store, path, data, mode="overwrite")

    def read(self, path: str) -> bytes:
        """The whole object."""
        with _translated("read", self.url, path):
            return bytes(obstore.get(self._store, path).bytes())

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """The bytes from start up to, but not including, end."""
        with _translated("read", self.url, path):
            return (
                bytes(obstore.get_range(self._store, path, start=start, end=end))
                if end > start
                else b""
            )

    def size(self, path: str) -> int | None:
        """The object's size, or None where there is no such object."""
        with _translated("look at", self.url, path):
            try:
                return int(obstore.head(self._store, path)["size"])
            except (NotFoundError, FileNotFoundError):
                return None

    def list(self, prefix: str) -> tuple[StoredObject, ...]:
        """All objects under a folder, at any depth, sorted by path. One request per thousand or
        so.
        """
        with _translated("list", self.url, prefix):
            found = [
                StoredObject(str(meta["path"]), int(meta["size"]))
                for batch in obstore.list(self._store, prefix=prefix)
                for meta in batch
            ]
        return tuple(sorted(found))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects; those already gone are fine."""
        for path in paths:
            with _translated("delete", self.url, path):
                try:
                    obstore.delete(self._store, path)
                except (NotFoundError, FileNotFoundError):
                    continue

    def move(self, source: str, target: str) -> None:
        """Move an object; a target of the same name is replaced. On a local disk this is one
        rename.
        """
        with _translated("move", self.url, source):
            obstore.rename(self._store, source, target)


def split_url(url: str) -> tuple[str, str]:
    """(scheme, path) of a storage URL; a plain path is a local folder."""
    parts = urlsplit(url)
    if len(parts.scheme) <= 1:
        return "file", str(Path(url).expanduser().absolute())
    if parts.scheme == "file":
        return "file", parts.path
    return parts.scheme, parts.path


def storage_url(text: str) -> str:
    """What a user wrote as a place for objects, as a URL that does not depend on the working
    directory.
    """
    scheme, path = split_url(text)
    return f"file://{path}" if scheme == "file" else text


def is_missing_folder(url: str) -> bool:
    """Whether a URL is of a local folder that does not exist. Opening a store makes it."""
    scheme, path = split_url(url)
    return scheme == "file" and not Path(path).is_dir()


@functools.cache
def shared_store(url: str) -> ObjectStore:
    """The process's one client for a URL: connection pools are kept between tasks."""
    return ObjectStore(url)


def require_writable(store: ObjectStore) -> None:
    """Fail now, with a clear sentence, rather than at the first checkpoint."""
    scheme, path = split_url(store.url)
    if scheme != "file":
        return
    try:
        make_private_folder(Path(path))
    except OSError as error:
        raise ConfigError(
            f"cannot create the folder {path}: {error.strerror}", hint="Choose another --state-dir."
        ) from error
    if not os.access(path, os.W_OK | os.X_OK) or _is_read_only(path):
        raise ConfigError(
            f"cannot write to {path}", hint="Make it writable, or choose another --state-dir."
        )


def _is_read_only(path: str) -> bool:
    # Root passes os.access on a folder whose mode forbids writing; its owner meant it, so it is
    # honoured.
    return not Path(path).stat().st_mode & 0o222 or bool(os.statvfs(path).f_flag & os.ST_RDONLY)


_HINT = "Check that the location exists and that this user may read and write it."


@contextmanager
def _translated(verb: str, url: str, path: str) -> Iterator[None]:
    try:
        yield
    except (NotFoundError, FileNotFoundError) as error:
        raise ObjectMissing(f"cannot {verb} {url}/{path}: it does not exist") from error
    except (BaseError, OSError) as error:
        raise StorageError(f"cannot {verb} {url}/{path}: {_brief(error)}", hint=_HINT) from error


def _brief(error: BaseException) -> str:
    return str(error).split("\n", 1)[0].removeprefix("Generic LocalFileSystem error: ")
