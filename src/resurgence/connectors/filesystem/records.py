"""The records of a `filesystem` sink in its commit log: which objects became visible, under which
names, and which parts are held back. Pure. `rolling` explains why they are as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from resurgence.connectors.commit_log import EntryKind, LogEntry
from resurgence.connectors.filesystem.rolling import Part, Rolled
from resurgence.errors import SinkError
from resurgence.ids import Epoch


class Span(NamedTuple):
    """The rows of one epoch in a file."""

    epoch: Epoch
    rows: int
    bytes: int


def spans(parts: Sequence[Part]) -> tuple[Span, ...]:
    """Return the rows of each epoch in a file that is merged from these parts."""
    found: dict[Epoch, Span] = {}
    for each in parts:
        before = found.get(each.epoch, Span(each.epoch, 0, 0))
        found[each.epoch] = Span(each.epoch, before.rows + each.rows, before.bytes + each.bytes)
    return tuple(found.values())


class HeldPart(BaseModel):
    """A part in the record of its epoch."""

    model_config = ConfigDict(frozen=True)

    path: str
    rows: int
    bytes: int
    folder: str = ""
    suffix: str

    @classmethod
    def of(cls, part: Part) -> HeldPart:
        return cls(
            path=part.path,
            rows=part.rows,
            bytes=part.bytes,
            folder=part.folder,
            suffix=part.suffix,
        )


class Record(BaseModel):
    """The content of a record: of a commit, of a flush, or of a retraction."""

    model_config = ConfigDict(frozen=True)

    files: tuple[str, ...] = ()
    """The staged objects that become visible."""
    names: tuple[str, ...] = ()
    """Their final names. An edited table would make up others."""
    spans: tuple[tuple[Span, ...], ...] = ()
    """The epochs of each file; empty if all files have rows of this epoch alone."""
    held: tuple[HeldPart, ...] = ()
    """The parts of this epoch that are held back."""
    taken: tuple[str, ...] = ()
    """The parts of earlier epochs, or of this one, that were merged into files."""
    planned_at: int = 0
    since: Epoch | None = None
    """The oldest epoch of which a part is held after this record; None if none is."""

    def content(self) -> dict[str, JsonValue]:
        """Return it as it is stored. What is empty is omitted, except the files."""
        dumped = self.model_dump(mode="json", exclude_defaults=True)
        return {"files": [*self.files], **dumped}

    @classmethod
    def parse(cls, content: dict[str, JsonValue], place: str) -> Record:
        """Return the record with this content. Raises SinkError if it is damaged."""
        try:
            found = cls.model_validate(content)
        except ValidationError as error:
            raise _damaged(place) from error
        if found.names and len(found.names) != len(found.files):
            raise _damaged(place)
        return found

    def added(self, epoch: Epoch) -> tuple[Part, ...]:
        """Return the parts that the record of an epoch holds back."""
        return tuple(
            Part(each.path, each.rows, each.bytes, each.folder, each.suffix, epoch, self.planned_at)
            for each in self.held
        )


def _damaged(place: str) -> SinkError:
    return SinkError(
        f"a commit record in {place} is damaged: its files cannot be read",
        hint="Restore the records of the sink from a backup.",
    )


def commit_record(epoch: Epoch, rolled: Rolled, objects: Sequence[str], planned_at: int) -> Record:
    """Return the record of an epoch that makes these objects visible, without their names."""
    taken = tuple(part.path for file in rolled.files for part in file if part.epoch != epoch)
    held = [part for part in rolled.held if part.epoch == epoch]
    return Record(
        files=tuple(objects),
        spans=tuple(map(spans, rolled.files)) if taken else (),
        held=tuple(map(HeldPart.of, held)),
        taken=taken,
        planned_at=planned_at if held else 0,
        since=oldest(rolled.held),
    )


def flush_record(rolled: Rolled, objects: Sequence[str], names: tuple[str, ...]) -> Record:
    """Return the record of a flush that makes these objects visible."""
    return Record(
        files=tuple(objects),
        names=names,
        spans=tuple(map(spans, rolled.files)),
        taken=tuple(part.path for file in rolled.files for part in file),
        since=oldest(rolled.held),
    )


@dataclass(frozen=True)
class Kept:
    """What remains of a file after a rollback."""

    name: str
    spans: tuple[Span, ...]
    """The epochs that remain, which are the first rows of the file."""

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.spans)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.spans)


def held_parts(
    entries: Iterable[tuple[LogEntry, Record]], dead: Collection[tuple[Epoch, Epoch]] = ()
) -> tuple[Part, ...]:
    """Return the parts that are held after these entries, oldest first. `dead` are more ranges of
    retracted epochs: those after one, up to another.
    """
    listed = [*entries]
    taken = {path for _, each in listed for path in each.taken}
    retracted = [
        *dead,
        *(
            (entry.after, entry.epoch)
            for entry, _ in listed
            if entry.kind is EntryKind.RETRACTION and entry.after is not None
        ),
    ]
    return tuple(
        part
        for entry, each in listed
        if entry.kind is EntryKind.COMMIT
        and not any(after < entry.epoch <= up_to for after, up_to in retracted)
        for part in each.added(entry.epoch)
        if part.path not in taken
    )


def oldest(parts: Iterable[Part]) -> Epoch | None:
    """Return the oldest epoch of these parts."""
    return min((each.epoch for each in parts), default=None)


def surviving(record: Record, names: Sequence[str], after: Epoch) -> tuple[Kept, ...]:
    """Return what remains of a record's files when the epochs after one are retracted."""
    found = zip(names, record.spans, strict=True) if record.spans else ()
    kept = (Kept(name, tuple(one for one in each if one.epoch <= after)) for name, each in found)
    return tuple(each for each in kept if each.spans)
