"""The commit log of a file sink: beside the output, one small record per (job, epoch).

The first to create an epoch's record fixes what that epoch's output is; everyone else, a zombie or
whoever restores the job, completes that record instead of their own. So an epoch that is replayed
after a fallback, perhaps with its rows dealt to other files, can never become visible twice or in
two mixed versions.
"""

from __future__ import annotations

import json

from pydantic import JsonValue

from resurgence.errors import ObjectMissing, SinkError
from resurgence.ids import Epoch, JobIdentity
from resurgence.storage.object_store import ObjectStore

RECORDS_KEPT = 101
"""One more than the most checkpoints that can be kept: whatever can be replayed has its record."""


class CommitLog:
    """The records of one sink, under `{folder}/{job}/`."""

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store = store
        self._folder = folder

    def staged_prefix(self, job: JobIdentity, epoch: Epoch, generation: int) -> str:
        """Where an epoch's output is staged; the names end in no suffix that a reader would look
        for.
        """
        return f"{self._folder}/{job}/staged/{epoch:010}-{generation}"

    def sweep(self, job: JobIdentity, epoch: Epoch) -> None:
        """Remove all that is staged for epochs up to this one, but for what a commit that was begun
        still needs: should its epoch be replayed, that is what must become visible.
        """
        listed = [each.path for each in self._store.list(f"{self._folder}/{job}/staged")]
        staged_for = {path: Epoch(int(path.rsplit("/", 1)[1].split("-")[0])) for path in listed}
        past = {path: each for path, each in staged_for.items() if each <= epoch}
        needed = {path for each in set(past.values()) for path in self._fixed_files(job, each)}
        self._store.delete(path for path in past if path not in needed)

    def _fixed_files(self, job: JobIdentity, epoch: Epoch) -> list[JsonValue]:
        try:
            files = self._read(self._path(job, epoch)).get("files")
        except ObjectMissing:
            return []
        return files if isinstance(files, list) else []

    def fix(
        self, job: JobIdentity, epoch: Epoch, content: dict[str, JsonValue]
    ) -> dict[str, JsonValue]:
        """The content of an epoch: this one if it is the first, else the one that was fixed
        before.
        """
        path = self._path(job, epoch)
        content = {"version": 1, **content}
        if not self._store.create(path, json.dumps(content).encode()):
            return self._read(path)
        if epoch > RECORDS_KEPT:
            self._store.delete([self._path(job, Epoch(epoch - RECORDS_KEPT))])
        return content

    def latest(self, job: JobIdentity) -> tuple[Epoch, dict[str, JsonValue]] | None:
        """The newest epoch that was fixed, and its content."""
        listed = self._store.list(f"{self._folder}/{job}/epochs")
        if not listed:
            return None
        path = listed[-1].path
        return Epoch(int(path.rsplit("/", 1)[1].removesuffix(".json"))), self._read(path)

    def _read(self, path: str) -> dict[str, JsonValue]:
        try:
            return dict(json.loads(self._store.read(path)))
        except (ValueError, TypeError) as error:
            raise SinkError(
                f"the commit record {self._store.url}/{path} is damaged",
                hint="bring it back from a copy: it says what this epoch's output is",
            ) from error

    def _path(self, job: JobIdentity, epoch: Epoch) -> str:
        return f"{self._folder}/{job}/epochs/{epoch:010}.json"
