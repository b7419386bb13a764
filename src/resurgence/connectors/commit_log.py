"""The commit log of a file sink: beside the output, one small record per (job, epoch).

The process that creates an epoch's record first fixes the output of that epoch. Every other one, a
zombie or a restored job, completes that record instead of its own. So an epoch that is replayed
after a fallback, perhaps with its rows in other files, can never become visible twice or in two
mixed versions. A retraction after a rollback is a record, too.

A record names the input that the epoch covers. Records written by older releases do not; those
epochs are identified by their numbers alone.

Records are retained as long as checkpoints are, which can be days. All but the newest are merged
into objects of many epochs, under `past/`, so that a commit lists a few hundred objects at most.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from pydantic import JsonValue, ValidationError

from resurgence.connectors.contract import CoveredInput, SinkMemory
from resurgence.errors import ObjectMissing, SinkError
from resurgence.ids import NO_EPOCH, Epoch, JobIdentity
from resurgence.state.protocol.epoch_runs import EpochRuns
from resurgence.storage.object_store import ObjectStore

CLOSED_EPOCHS = 101
"""How many of the epochs that a rollback declared dead are closed. A fenced process can only hold
an epoch after which no later one was begun, so closing the newest ones is enough.
"""
RECENT = 100
"""How many of the newest records remain objects of their own. Older ones are merged when there are
twice as many in all.
"""
_INPUT = "input"


@dataclass(frozen=True)
class _Listed:
    """A record: of an epoch, or of the retraction of the epochs after `after` up to `epoch`."""

    epoch: Epoch
    after: Epoch | None
    path: str

    @property
    def rank(self) -> tuple[int, int]:
        """A retraction ranks after the epoch itself, and the one that reaches back further last."""
        return self.epoch, 0 if self.after is None else self.epoch - self.after


class CommitLog:
    """The records of one sink, under `{folder}/{job}/`."""

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._merged_up_to: dict[JobIdentity, Epoch] = {}

    def staged_prefix(self, job: JobIdentity, epoch: Epoch, generation: int) -> str:
        """Return the prefix of an epoch's staged objects. Their names have no suffix that a reader
        would match.
        """
        return f"{self._folder}/{job}/staged/{epoch:010}-{generation}"

    def sweep(
        self,
        job: JobIdentity,
        epoch: Epoch,
        is_visible: Callable[[Epoch, int], bool] = lambda _epoch, _number: False,
    ) -> None:
        """Remove everything staged for epochs up to this one, except the files of a commit that was
        begun: if its epoch is replayed, those files must become visible. `is_visible` returns
        whether the file with a number already is.
        """
        past = {path: each for path, each in self._staged(job).items() if each <= epoch}
        needed = {
            path
            for each in set(past.values())
            for number, path in enumerate(self._fixed_files(job, each))
            if path in past and not is_visible(each, number)
        }
        self._store.delete(path for path in past if path not in needed)

    def _fixed_files(self, job: JobIdentity, epoch: Epoch) -> list[JsonValue]:
        files = (self.fixed(job, epoch) or {}).get("files")
        return files if isinstance(files, list) else []

    def fix(
        self,
        job: JobIdentity,
        epoch: Epoch,
        content: dict[str, JsonValue],
        covered: CoveredInput,
    ) -> dict[str, JsonValue]:
        """Fix the content of an epoch unless it was fixed before, and return the fixed content."""
        if (merged := self._merged(job, epoch)) is not None:
            return merged
        path = self._path(job, epoch)
        content = {"version": 1, **content, _INPUT: covered.model_dump(mode="json")}
        if self._store.create(path, json.dumps(content).encode()):
            return content
        return self._read(path)

    def fixed(self, job: JobIdentity, epoch: Epoch) -> dict[str, JsonValue] | None:
        """Return the fixed content of an epoch; None if it was not fixed."""
        try:
            return self._read(self._path(job, epoch))
        except ObjectMissing:
            return self._merged(job, epoch)

    def _merged(self, job: JobIdentity, epoch: Epoch) -> dict[str, JsonValue] | None:
        """Return the content of an epoch whose record was merged. The newest merged epoch is read
        once, because only the job's own upkeep merges.
        """
        if job not in self._merged_up_to:
            self._merged_up_to[job] = self._past(job).newest()
        if epoch > self._merged_up_to[job]:
            return None
        return self._past(job).between(Epoch(epoch - 1), epoch).get(epoch)

    def covered(self, content: Mapping[str, JsonValue]) -> CoveredInput | None:
        """Return the input that an epoch's content covers; None if it names none."""
        try:
            return CoveredInput.model_validate(content[_INPUT]) if _INPUT in content else None
        except ValidationError as error:
            raise SinkError(
                f"a commit record in {self._store.url}/{self._folder} is damaged: its input cannot"
                " be read",
                hint="Restore the records of the sink from a backup.",
            ) from error

    def recall(self, job: JobIdentity, epochs: Collection[Epoch]) -> SinkMemory:
        """Return the newest epoch on record, all retractions, and the input of `epochs`."""
        records = self._records(job)
        contents = {
            each.epoch: self.fixed(job, each.epoch) or {}
            for each in records
            if each.after is None and each.epoch in epochs
        }
        if epochs:
            past = self._past(job).between(Epoch(min(epochs) - 1), max(epochs))
            contents = {epoch: each for epoch, each in past.items() if epoch in epochs} | contents
        return SinkMemory(
            newest=records[-1].epoch if records else NO_EPOCH,
            inputs={
                epoch: covered
                for epoch, content in contents.items()
                if (covered := self.covered(content)) is not None
            },
            retracted=tuple(
                (Epoch(each.after + 1), each.epoch) for each in records if each.after is not None
            ),
        )

    def forget(self, job: JobIdentity, before: Epoch) -> None:
        """Delete the records of epochs before one, and merge older ones if there are many. Retain
        the newest record: it marks which numbers are used, and where the output ends.
        """
        records = self._records(job)
        self._store.delete(each.path for each in records[:-1] if each.epoch < before)
        self._past(job).prune(Epoch(before - 1))
        single = [each for each in records if each.after is None and each.epoch >= before]
        if len(single) >= 2 * RECENT:
            old = single[:-RECENT]
            self._past(job).add({each.epoch: self._read(each.path) for each in old})
            self._store.delete(each.path for each in old)
            self._merged_up_to.pop(job, None)

    def latest(self, job: JobIdentity) -> tuple[Epoch, dict[str, JsonValue]] | None:
        """Return the epoch and the content of the newest record, be it a commit or a retraction."""
        records = self._records(job)
        return (records[-1].epoch, self._read(records[-1].path)) if records else None

    def between(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> list[dict[str, JsonValue]]:
        """Return the contents fixed for the epochs after one up to another, oldest first."""
        records = self._records(job)
        past = self._past(job).between(after, up_to)
        return [
            *past.values(),
            *(self._read(each.path) for each in records if after < each.epoch <= up_to),
        ]

    def is_retracted(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> bool:
        """Return whether all epochs after one up to another have been retracted."""
        marks = [each.after for each in self._records(job) if each.epoch == up_to]
        return any(each is not None and each <= after for each in marks)

    def close(
        self, job: JobIdentity, after: Epoch, up_to: Epoch, content: dict[str, JsonValue]
    ) -> None:
        """Close the epochs after one up to another, so that a zombie that still commits one of them
        finds it fixed without output.
        """
        dead = range(max(after, up_to - CLOSED_EPOCHS) + 1, up_to + 1)
        for epoch in dead:
            self._store.create(self._path(job, Epoch(epoch)), _closed(content))
        staged = self._staged(job).items()
        self._store.delete(path for path, epoch in staged if after < epoch <= up_to)

    def mark_retracted(
        self, job: JobIdentity, after: Epoch, up_to: Epoch, content: dict[str, JsonValue]
    ) -> None:
        """Record that these epochs have no output any more. `latest` returns `content` from then
        on.
        """
        path = f"{self._folder}/{job}/epochs/{up_to:010}-{after:010}.json"
        self._store.create(path, _closed(content))

    def _records(self, job: JobIdentity) -> list[_Listed]:
        """Return all records in the order in which they apply: the last one is in effect."""
        found = []
        for each in self._store.list(f"{self._folder}/{job}/epochs"):
            name = each.path.rsplit("/", 1)[1].removesuffix(".json")
            epoch, _, after = name.partition("-")
            if epoch.isdecimal():
                found.append(
                    _Listed(Epoch(int(epoch)), Epoch(int(after)) if after else None, each.path)
                )
        return sorted(found, key=lambda each: each.rank)

    def _past(self, job: JobIdentity) -> EpochRuns[dict[str, JsonValue]]:
        """Return the merged records."""
        return EpochRuns(
            self._store, f"{self._folder}/{job}/past", _merged_text, self._merged_records
        )

    def _merged_records(self, path: str, data: bytes) -> dict[Epoch, dict[str, JsonValue]]:
        try:
            epochs = json.loads(data)["epochs"]
            return {Epoch(int(epoch)): dict(each) for epoch, each in epochs.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._damaged(path) from error

    def _staged(self, job: JobIdentity) -> dict[str, Epoch]:
        listed = [each.path for each in self._store.list(f"{self._folder}/{job}/staged")]
        return {path: Epoch(int(path.rsplit("/", 1)[1].split("-")[0])) for path in listed}

    def _read(self, path: str) -> dict[str, JsonValue]:
        try:
            return dict(json.loads(self._store.read(path)))
        except (ValueError, TypeError) as error:
            raise self._damaged(path) from error

    def _damaged(self, path: str) -> SinkError:
        return SinkError(
            f"the commit record {self._store.url}/{path} is damaged",
            hint="Restore it from a backup. It defines the output of this epoch.",
        )

    def _path(self, job: JobIdentity, epoch: Epoch) -> str:
        return f"{self._folder}/{job}/epochs/{epoch:010}.json"


def _closed(content: dict[str, JsonValue]) -> bytes:
    return json.dumps({"version": 1, "files": [], **content}).encode()


def _merged_text(epochs: Mapping[Epoch, dict[str, JsonValue]]) -> bytes:
    return json.dumps({"version": 1, "epochs": epochs}).encode()
