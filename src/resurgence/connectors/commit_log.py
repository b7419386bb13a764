"""The commit log of a file sink: beside the output, one small record per (job, epoch).

The process that creates an epoch's record first fixes the output of that epoch. Every other one, a
zombie or a restored job, completes that record instead of its own. So an epoch that is replayed
after a fallback, perhaps with its rows in other files, can never become visible twice or in two
mixed versions. A retraction after a rollback is a record, too. So is a flush, which makes output
visible that commits have held back: it follows the newest record, and each record has one at most.

A record names the input that the epoch covers. Records written by older releases do not; those
epochs are identified by their numbers alone.

Records are retained as long as checkpoints are, which can be days. All but the newest are merged
into objects of many epochs, under `past/`, so that a commit lists a few hundred objects at most.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import JsonValue, ValidationError

from resurgence.connectors.contract import CoveredInput, SinkMemory
from resurgence.errors import ObjectMissing, SinkError
from resurgence.ids import NO_EPOCH, Epoch, JobIdentity
from resurgence.state.protocol.epoch_runs import EpochRuns
from resurgence.storage.object_store import ObjectStore
from resurgence.storage.parallel import in_parallel

CLOSED_EPOCHS = 101
"""How many of the epochs that a rollback declared dead are closed. A fenced process can only hold
an epoch after which no later one was begun, so closing the newest ones is enough.
"""
RECENT = 100
"""How many of the newest records remain objects of their own. Older ones are merged when there are
twice as many in all.
"""
_INPUT = "input"
_FLUSHED = "flushed"
"""The suffix of a flush, and its key in the record of its epoch once they are merged."""


class EntryKind(StrEnum):
    """What a record is of."""

    COMMIT = "commit"
    FLUSH = "flush"
    RETRACTION = "retraction"


@dataclass(frozen=True)
class _Listed:
    """A record: of an epoch, of the retraction of the epochs after `after` up to `epoch`, or of the
    flush after one of these.
    """

    epoch: Epoch
    kind: EntryKind
    after: Epoch | None
    path: str

    @property
    def rank(self) -> tuple[int, int, bool]:
        """A retraction ranks after the epoch itself, and the one that reaches back further last. A
        flush ranks after the record that it follows.
        """
        reach = 0 if self.after is None else self.epoch - self.after
        return self.epoch, reach, self.kind is EntryKind.FLUSH


@dataclass(frozen=True)
class LogEntry:
    """A record that was read."""

    epoch: Epoch
    kind: EntryKind
    content: dict[str, JsonValue]
    after: Epoch | None = None
    """Of a retraction, and of the flush after it: the epoch after which everything was
    retracted.
    """


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
        is_visible: Callable[[Epoch, dict[str, JsonValue], int], bool] = lambda *_: False,
        is_held: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Remove everything staged for epochs up to this one, except the files of a commit that was
        begun: if its epoch is replayed, those files must become visible. `is_visible` returns
        whether the file with a number, in the content of an epoch, already is. `is_held` returns
        whether a file is needed besides, such as one that is held back.
        """
        past = {
            path: each
            for path, each in self._staged(job).items()
            if each <= epoch and not is_held(path)
        }
        contents = {each: self.fixed(job, each) or {} for each in set(past.values())}
        needed = {
            path
            for each, content in contents.items()
            for number, path in enumerate(_files(content))
            if path in past and not is_visible(each, content, number)
        }
        self._store.delete(path for path in past if path not in needed)

    def fix(
        self,
        job: JobIdentity,
        epoch: Epoch,
        content: dict[str, JsonValue],
        covered: CoveredInput,
    ) -> dict[str, JsonValue]:
        """Fix the content of an epoch unless it was fixed before, and return the fixed content."""
        return self.fix_first(job, epoch, content, covered)[0]

    def fix_first(
        self,
        job: JobIdentity,
        epoch: Epoch,
        content: dict[str, JsonValue],
        covered: CoveredInput,
    ) -> tuple[dict[str, JsonValue], bool]:
        """Do the same, and return also whether this call has fixed it."""
        if (merged := self._merged(job, epoch)) is not None:
            return merged, False
        content = {"version": 1, **content, _INPUT: covered.model_dump(mode="json")}
        return self._created(self._path(job, epoch), content)

    def fix_flush(
        self,
        job: JobIdentity,
        epoch: Epoch,
        after: Epoch | None,
        content: dict[str, JsonValue],
    ) -> tuple[dict[str, JsonValue], bool]:
        """Fix the content of the flush after an epoch's record, or after that of a retraction,
        unless it was fixed before. Return the fixed content, and whether this call has fixed it.
        """
        base = self._path(job, epoch) if after is None else self._mark_path(job, after, epoch)
        path = f"{base.removesuffix('.json')}-{_FLUSHED}.json"
        return self._created(path, {"version": 1, **content})

    def _created(
        self, path: str, content: dict[str, JsonValue]
    ) -> tuple[dict[str, JsonValue], bool]:
        if self._store.create(path, json.dumps(content).encode()):
            return content, True
        return self._read(path), False

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
            if each.kind is EntryKind.COMMIT and each.epoch in epochs
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
                (Epoch(each.after + 1), each.epoch)
                for each in records
                if each.kind is EntryKind.RETRACTION and each.after is not None
            ),
        )

    def has_records(self) -> bool:
        """Return whether there are records of any job."""
        found = (
            each.path.removeprefix(f"{self._folder}/") for each in self._store.list(self._folder)
        )
        return any(each.split("/")[1:2] in (["epochs"], ["past"]) for each in found)

    def forget(self, job: JobIdentity, before: Epoch) -> None:
        """Delete the records of epochs before one, and merge older ones if there are many. Retain
        the newest record: it marks which numbers are used, and where the output ends.
        """
        records = self._records(job)
        newest = records[-1].epoch if records else NO_EPOCH
        self._store.delete(each.path for each in records if each.epoch < min(before, newest))
        self._past(job).prune(Epoch(before - 1))
        single = [each for each in records if each.after is None and each.epoch >= before]
        if len(single) >= 2 * RECENT:
            bound = single[-RECENT].epoch
            old = [each for each in single if each.epoch < bound]
            self._past(job).add(self._with_flushes(old))
            self._store.delete(each.path for each in old)
            self._merged_up_to[job] = old[-1].epoch

    def _with_flushes(self, records: Sequence[_Listed]) -> dict[Epoch, dict[str, JsonValue]]:
        """Return the content of each epoch, with that of the flush after it."""
        found: dict[Epoch, dict[str, JsonValue]] = {}
        for each in records:
            content = self._read(each.path)
            if each.kind is EntryKind.FLUSH:
                content = {_FLUSHED: content}
            found[each.epoch] = {**found.get(each.epoch, {}), **content}
        return found

    def latest(self, job: JobIdentity) -> tuple[Epoch, dict[str, JsonValue]] | None:
        """Return the epoch and the content of the newest record, be it a commit or a retraction."""
        records = self._records(job)
        return (records[-1].epoch, self._read(records[-1].path)) if records else None

    def newest_output(self, job: JobIdentity) -> tuple[Epoch, dict[str, JsonValue]] | None:
        """Return the newest epoch that was fixed with output, and its content; None if there is none,
        or everything since was retracted.
        """
        for each in reversed(self._records(job)):
            if each.kind is EntryKind.RETRACTION:
                break
            content = self._read(each.path)
            if each.kind is EntryKind.COMMIT and _files(content):
                return each.epoch, content
        return None

    def staged(self, job: JobIdentity) -> list[str]:
        """Return the paths of everything that is staged."""
        return [*self._staged(job)]

    def between(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> list[dict[str, JsonValue]]:
        """Return the contents fixed for the epochs after one up to another, oldest first."""
        records = self._records(job)
        past = self._past(job).between(after, up_to)
        return [
            *past.values(),
            *(self._read(each.path) for each in records if after < each.epoch <= up_to),
        ]

    def newest(self, job: JobIdentity) -> LogEntry | None:
        """Return the newest record."""
        records = self._records(job)
        return self._entry(records[-1]) if records else None

    def entries(self, job: JobIdentity, since: Epoch) -> list[LogEntry]:
        """Return all records of an epoch and later ones, in the order in which they apply."""
        while True:
            listed = [each for each in self._records(job) if each.epoch >= since]
            try:
                single = in_parallel([functools.partial(self._entry, each) for each in listed])
            except ObjectMissing:
                # It was merged meanwhile.
                continue
            break
        past = [
            LogEntry(epoch, kind, content)
            for epoch, merged in self._past(job).between(Epoch(since - 1)).items()
            for kind, content in _split(merged)
        ]
        # A record is merged before it is deleted, so it may be found twice.
        found = {(each.epoch, each.kind, each.after): each for each in (*past, *single)}
        return sorted(found.values(), key=lambda each: each.epoch)

    def _entry(self, listed: _Listed) -> LogEntry:
        return LogEntry(listed.epoch, listed.kind, self._read(listed.path), listed.after)

    def is_retracted(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> bool:
        """Return whether all epochs after one up to another have been retracted. There are none if
        a job is rolled back to its newest epoch.
        """
        return up_to <= after or any(
            each.kind is EntryKind.RETRACTION
            and each.epoch == up_to
            and each.after is not None
            and each.after <= after
            for each in self._records(job)
        )

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
        self._store.create(self._mark_path(job, after, up_to), _closed(content))

    def _records(self, job: JobIdentity) -> list[_Listed]:
        """Return all records in the order in which they apply: the last one is in effect."""
        found = []
        for each in self._store.list(f"{self._folder}/{job}/epochs"):
            name = each.path.rsplit("/", 1)[1].removesuffix(".json")
            base = name.removesuffix(f"-{_FLUSHED}")
            epoch, _, mark = base.partition("-")
            if epoch.isdecimal():
                kind = EntryKind.RETRACTION if mark else EntryKind.COMMIT
                kind = kind if base == name else EntryKind.FLUSH
                after = Epoch(int(mark)) if mark else None
                found.append(_Listed(Epoch(int(epoch)), kind, after, each.path))
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

    def _mark_path(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> str:
        return f"{self._folder}/{job}/epochs/{up_to:010}-{after:010}.json"


def _files(content: Mapping[str, JsonValue]) -> list[JsonValue]:
    files = content.get("files")
    return files if isinstance(files, list) else []


def _split(merged: dict[str, JsonValue]) -> Iterator[tuple[EntryKind, dict[str, JsonValue]]]:
    """Yield the merged records of one epoch."""
    content = {name: value for name, value in merged.items() if name != _FLUSHED}
    if content:
        yield EntryKind.COMMIT, content
    flushed = merged.get(_FLUSHED)
    if isinstance(flushed, dict):
        yield EntryKind.FLUSH, flushed


def _closed(content: dict[str, JsonValue]) -> bytes:
    return json.dumps({"version": 1, "files": [], **content}).encode()


def _merged_text(epochs: Mapping[Epoch, dict[str, JsonValue]]) -> bytes:
    return json.dumps({"version": 1, "epochs": epochs}).encode()
