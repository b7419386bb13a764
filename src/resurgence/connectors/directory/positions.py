"""The position of a `filesystem` source: which files it has read, in a bounded space.

Files are ordered by a key: the name alone, or the modified time and the name. Of a source that has
read a million files, the position has

- `passed`: the key up to which all files are read. They are not listed by name, but counted, with the
  sum of their identities, so that a listing shows whether there is one that was not read;
- `recent`: the files after that key that were read. With the order `name` there are none, because no
  file may appear before one that was read. With the order `modified` they are the newest ones: a
  file may appear a little later than a newer one;
- `files`: the files of the range that ended here, and `rest`: what is left of the last one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import ValidationError

from resurgence.connectors.directory.files import Piece, identity, packed, pieces_in, unpacked
from resurgence.connectors.directory.options import FileOrder
from resurgence.errors import UserError
from resurgence.state.records import Offset, Part
from resurgence.storage.local_files import StoredFile

_MODULUS = 2**64


class Key(NamedTuple):
    """The place of a file in the order of files."""

    modified: int
    """0 if files are ordered by name."""
    path: str


def key_of(order: FileOrder, file: StoredFile | Piece) -> Key:
    """Return the place of a file."""
    return Key(file.modified if order is FileOrder.MODIFIED else 0, file.path)


@dataclass(frozen=True)
class Ledger:
    """A set of files by their number and the sum of their identities."""

    files: int = 0
    digest: int = 0

    def __add__(self, other: Ledger) -> Ledger:
        return Ledger(self.files + other.files, (self.digest + other.digest) % _MODULUS)

    def __sub__(self, other: Ledger) -> Ledger:
        return Ledger(self.files - other.files, (self.digest - other.digest) % _MODULUS)

    def has_more_than(self, other: Ledger) -> bool:
        """Return whether this set certainly has a file that the other one lacks. A set with fewer
        files may have one as well, which is not known.
        """
        return self.files > other.files or (
            self.files == other.files and self.digest != other.digest
        )


def ledger(files: int, digest: int) -> Ledger:
    """Return a set of files by their number and the plain sum of their identities."""
    return Ledger(files, digest % _MODULUS)


class RecentFile(NamedTuple):
    """A file that was read, and that is named because older ones may still appear."""

    modified: int
    path: str
    identity: int

    @property
    def key(self) -> Key:
        return Key(self.modified, self.path)


class Position(Part):
    """How far a source has been read."""

    omitted_if_empty = frozenset({"recent", "files", "rest"})

    order: FileOrder
    selection: str
    """Identifies the patterns of the table: what is counted depends on them."""
    passed_modified: int = 0
    passed_name: str = ""
    passed_files: int = 0
    passed_digest: str = "0"
    recent: str = ""
    files: str = ""
    rest: str = ""
    stop: tuple[int, str] | None = None
    """The key of the last file of a bounded source."""

    @classmethod
    def of(cls, offset: Offset) -> Position:
        """Return the position that an offset contains. Raise UserError if it is not one."""
        try:
            return cls.model_validate(offset)
        except ValidationError as error:
            raise UserError(
                f"{str(offset)[:200]} is not an offset of a filesystem source",
                hint="Restore the checkpoint from a backup. It was edited by hand.",
            ) from error

    def as_offset(self) -> Offset:
        return self.model_dump(mode="json", exclude_none=True)

    @property
    def passed(self) -> Key:
        return Key(self.passed_modified, self.passed_name)

    @property
    def ledger(self) -> Ledger:
        """All files up to `passed`."""
        return Ledger(self.passed_files, int(self.passed_digest, 16))

    @property
    def stop_key(self) -> Key | None:
        return None if self.stop is None else Key(*self.stop)

    def recent_files(self) -> list[RecentFile]:
        return [RecentFile(*each) for each in unpacked(self.recent)]  # type: ignore[arg-type]

    def pieces(self) -> list[Piece]:
        """Return what the range that ended here has read."""
        return pieces_in(self.files)

    def rest_piece(self) -> Piece | None:
        """Return what is left of the last file."""
        return next(iter(pieces_in(self.rest)), None)

    def with_pieces(self, pieces: Iterable[Piece]) -> Position:
        """Return the position as the end of another range, which has read these pieces."""
        return self.model_copy(update={"files": packed(pieces)})


def advanced(
    position: Position,
    files: Iterable[StoredFile],
    pieces: Iterable[Piece],
    rest: Piece | None,
    remembered: int,
) -> Position:
    """Return the position after a range that begins to read `files`, reads `pieces` and leaves a
    rest. The oldest recent files are passed when there are more than are remembered.
    """
    order = position.order
    recent = sorted(
        {
            *position.recent_files(),
            *(RecentFile(*key_of(order, each), identity(each)) for each in files),
        }
    )
    named = remembered if order is FileOrder.MODIFIED else 0
    settled = recent[: max(0, len(recent) - named)]
    total = position.ledger + ledger(len(settled), sum(each.identity for each in settled))
    passed = settled[-1].key if settled else position.passed
    return position.model_copy(
        update={
            "passed_modified": passed.modified,
            "passed_name": passed.path,
            "passed_files": total.files,
            "passed_digest": f"{total.digest:x}",
            "recent": packed(recent[len(settled) :]),
            "files": packed(pieces),
            "rest": packed([] if rest is None else [rest]),
        }
    )
