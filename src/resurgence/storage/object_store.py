"""Object storage: the only access to durable state.

Owns the translation of obstore's calls and errors. Offers a few operations and knows nothing about
checkpoints. Conditional create is the only lock that every object store has. Only `replace`
overwrites an object, and nothing that a restore reads is written with it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import LocalStore, MemoryStore
from obstore.store import ObjectStore as Client

from resurgence.errors import ConfigError, ObjectMissing, StorageError
from resurgence.storage.access import StoreAccess, store_access
from resurgence.storage.client_options import client
from resurgence.storage.local_files import StoredFile, local_files, read_local
from resurgence.storage.parallel import in_parallel
from resurgence.storage.private_files import make_private_folder

if TYPE_CHECKING:
    from obstore import ObjectMeta

_MISSING = (NotFoundError, FileNotFoundError)


@dataclass(frozen=True, order=True)
class StoredObject:
    """An entry of a listing."""

    path: str
    size: int


class ObjectStore:
    """A folder of an object store. Paths are relative to it and use '/'."""

    def __init__(
        self, url: str, *, private: bool = False, access: StoreAccess | None = None
    ) -> None:
        """`private`: create a missing local folder with access for its owner only. `access`: as
        another process resolved it; by default it is resolved here, for each request.
        """
        self.url = url
        self._access = access
        self._local: Client | None = None
        scheme, path = split_url(url)
        self.is_local = scheme == "file"
        try:
            if scheme == "file":
                if private:
                    make_private_folder(Path(path))
                # The umask decides who can read objects; deleting the last object of a folder
                # removes the folder.
                self._local = LocalStore(prefix=path, automatic_cleanup=True, mkdir=True)
            elif scheme == "memory":
                self._local = MemoryStore()
            else:
                _ = self._store
        except (BaseError, OSError, ValueError) as error:
            raise StorageError(f"cannot open {url}: {_brief(error)}", hint=_HINT) from error

    @property
    def access(self) -> StoreAccess:
        """The access for the tasks of one Spark job."""
        return self._access or store_access(self.url)

    @property
    def _store(self) -> Client:
        return self._local or client(self.access)

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"

    def create(self, path: str, data: bytes) -> bool:
        """Create the object if it is absent. Return False, without changing it, if it exists."""
        with _translated("write", self.url, path):
            try:
                obstore.put(self._store, path, data, mode="create")
            except AlreadyExistsError:
                return False
            return True

    def replace(self, path: str, data: bytes) -> None:
        """Write or overwrite the object. Readers see the old bytes or the new ones."""
        with _translated("write", self.url, path):
            obstore.put(self._store, path, data, mode="overwrite")

    def read(self, path: str) -> bytes:
        """Return the whole object."""
        with _translated("read", self.url, path):
            return bytes(obstore.get(self._store, path).bytes())

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Return the bytes from start up to, but not including, end."""
        with _translated("read", self.url, path):
            return (
                bytes(obstore.get_range(self._store, path, start=start, end=end))
                if end > start
                else b""
            )

    def size(self, path: str) -> int | None:
        """Return the object's size, or None if it does not exist."""
        with _translated("get the size of", self.url, path):
            try:
                return int(obstore.head(self._store, path)["size"])
            except _MISSING:
                return None

    def list(self, prefix: str, after: str | None = None) -> tuple[StoredObject, ...]:
        """List the objects under a folder, at any depth, sorted by path: all, or those whose path
        is greater than `after`. Takes one request per thousand objects or so.
        """
        with _translated("list", self.url, prefix):
            found = [
                StoredObject(str(meta["path"]), int(meta["size"]))
                for batch in obstore.list(self._store, prefix=prefix, offset=after)
                for meta in batch
                if after is None or str(meta["path"]) > after
            ]
        return tuple(sorted(found))

    def files(self, after: str = "") -> Iterator[StoredFile]:
        """Yield all objects whose path is greater than `after`, lazily: a page is requested when it
        is needed. They are in the order of their paths if the store lists them so, as S3 and Google
        Cloud Storage do, and as is done here for a local folder.
        """
        with _translated("list", self.url, after):
            if self.is_local:
                yield from local_files(split_url(self.url)[1], after)
                return
            for batch in obstore.list(self._store, offset=after or None, chunk_size=1000):
                # Some stores and their emulators list from the start, whatever the offset.
                yield from (each for each in map(_stored_file, batch) if each.path > after)

    def read_version(self, path: str, start: int, end: int) -> tuple[bytes, str]:
        """Return the bytes from start up to, but not including, end, and the ETag of the object
        that they are from, as `files` returns it.
        """
        with _translated("read", self.url, path):
            if self.is_local:
                return read_local(f"{split_url(self.url)[1]}/{path}", start, end)
            found = obstore.get(self._store, path, options={"range": (start, end)})
            return bytes(found.bytes()), _stored_file(found.meta).etag

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects in any order, ignoring those that do not exist. Takes one request per
        thousand objects where the store can delete in bulk. After a failure, any of them may be
        left.
        """
        listed = tuple(paths)
        if not self.is_local and len(listed) > 1:
            with _translated("delete", self.url, listed[0]), suppress(*_MISSING):
                obstore.delete(self._store, [*listed])
                return
        # The bulk deletions of some stores stop at the first object that does not exist.
        for path in listed:
            with _translated("delete", self.url, path), suppress(*_MISSING):
                obstore.delete(self._store, path)

    def move(self, moves: Mapping[str, str]) -> tuple[str, ...]:
        """Move objects to new paths, replacing what exists there. On a local disk each move is one
        rename. Elsewhere objects are copied, all at the same time, and their old paths are returned
        for the caller to delete.
        """
        if self.is_local:
            for source, target in moves.items():
                with _translated("move", self.url, source):
                    obstore.rename(self._store, source, target)
            return ()
        in_parallel([functools.partial(self._copy, *each) for each in moves.items()])
        return tuple(moves)

    def _copy(self, source: str, target: str) -> None:
        with _translated("copy", self.url, source):
            obstore.copy(self._store, source, target)


def _stored_file(meta: ObjectMeta) -> StoredFile:
    modified, size = int(meta["last_modified"].timestamp() * 1_000_000), int(meta["size"])
    # Azure lists ETags without the quotes that it answers reads with.
    etag = (meta["e_tag"] or "").strip('"') or f"{modified:x}-{size:x}"
    return StoredFile(str(meta["path"]), size, modified, etag)


def split_url(url: str) -> tuple[str, str]:
    """Split a storage URL into (scheme, path). A plain path is a local folder."""
    parts = urlsplit(url)
    if len(parts.scheme) <= 1:
        return "file", str(Path(url).expanduser().absolute())
    if parts.scheme == "file":
        return "file", parts.path
    return parts.scheme, parts.path


def storage_url(text: str) -> str:
    """Convert a storage location written by a user to a URL that does not depend on the working
    directory.
    """
    scheme, path = split_url(text)
    return f"file://{path}" if scheme == "file" else text


def is_missing_folder(url: str) -> bool:
    """Return whether a URL names a local folder that does not exist. Opening a store creates it."""
    scheme, path = split_url(url)
    return scheme == "file" and not Path(path).is_dir()


@functools.cache
def shared_store(url: str) -> ObjectStore:
    """Return the driver's store for a URL."""
    return ObjectStore(url)


@functools.lru_cache(32)
def task_store(access: StoreAccess) -> ObjectStore:
    """Return the store of a Spark task, which may run on another machine."""
    return ObjectStore(access.url, access=access)


def require_writable(store: ObjectStore) -> None:
    """Raise ConfigError now, and not at the first checkpoint, if a local store is not writable."""
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
    # os.access lets root write to a folder whose mode forbids it. The owner chose that mode, so
    # it is respected.
    return not Path(path).stat().st_mode & 0o222 or bool(os.statvfs(path).f_flag & os.ST_RDONLY)


_HINT = "Check that the location exists and that this user may read and write it."


@contextmanager
def _translated(verb: str, url: str, path: str) -> Iterator[None]:
    try:
        yield
    except _MISSING as error:
        raise ObjectMissing(f"cannot {verb} {url}/{path}: it does not exist") from error
    except (BaseError, OSError) as error:
        raise StorageError(f"cannot {verb} {url}/{path}: {_brief(error)}", hint=_HINT) from error


def _brief(error: BaseException) -> str:
    return str(error).split("\n", 1)[0].removeprefix("Generic LocalFileSystem error: ")
