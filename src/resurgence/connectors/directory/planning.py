"""What a `filesystem` source reads next, as pure functions of its position and a listing."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from resurgence.connectors.directory.files import Piece, identity
from resurgence.connectors.directory.positions import Key, Ledger, Position, key_of, ledger
from resurgence.storage.local_files import StoredFile

YOUNG_MICROS = 60_000_000
"""A file that was modified so shortly before a listing is young: others that are older may have been
created while the listing ran, behind its back.
"""


@dataclass(frozen=True)
class Unread:
    """The files that follow a position, as far as they are known."""

    files: tuple[StoredFile, ...] = ()
    """In order."""
    is_complete: bool = True
    """There were no others when they were listed."""
    passed: Ledger = field(default_factory=Ledger)
    """The listed files up to the key that the position has passed, if all were listed."""


def unread_among(
    listed: Iterable[StoredFile], position: Position, most: int, young_from: int, most_young: int
) -> Unread:
    """Return the first unread files of a whole listing, in the order of modified times.

    Files that were modified after `young_from` are taken up to `most_young`: as many as a position
    names. So an older file that this listing has missed is not behind what the position has passed
    when the next listing finds it.
    """
    known = {each.key for each in position.recent_files()}
    count, digest, stop = 0, 0, position.stop_key
    found: list[tuple[Key, StoredFile]] = []
    dropped = False
    for file in listed:
        key = key_of(position.order, file)
        if key <= position.passed:
            count, digest = count + 1, digest + identity(file)
        elif key not in known and (stop is None or key <= stop):
            found.append((key, file))
            if len(found) >= 4 * most:
                found, dropped = heapq.nsmallest(most, found), True
    dropped = dropped or len(found) > most
    ordered = [file for _, file in heapq.nsmallest(most, found)]
    old = [each for each in ordered if each.modified <= young_from]
    young = ordered[len(old) :]
    chosen = old + young[: max(0, most_young)]
    return Unread(tuple(chosen), not dropped and len(chosen) == len(ordered), ledger(count, digest))


def still_unread(unread: Unread, position: Position) -> Unread:
    """Return what is left of a listing after a later position."""
    known = {each.key for each in position.recent_files()}
    left = tuple(
        each
        for each in unread.files
        if (key := key_of(position.order, each)) > position.passed and key not in known
    )
    return Unread(left, unread.is_complete, unread.passed)


@dataclass(frozen=True)
class Budget:
    """The limits of an epoch."""

    files: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class Choice:
    """The input of an epoch: whole pieces, or the beginning of one that is too large."""

    whole: tuple[Piece, ...] = ()
    cut: Piece | None = None


def chosen(
    candidates: Sequence[Piece],
    budget: Budget,
    rows_of: Callable[[Piece], int],
    bytes_of: Callable[[Piece], int],
    can_be_cut: Callable[[Piece], bool],
) -> Choice:
    """Choose pieces, in order, while they fit. One that does not fit alone is cut; if it cannot be,
    it is an epoch by itself.
    """
    taken: list[Piece] = []
    rows, size = budget.rows, budget.bytes
    for each in candidates[: budget.files]:
        rows, size = rows - rows_of(each), size - bytes_of(each)
        if rows < 0 or size < 0:
            if taken:
                break
            return Choice(cut=each) if can_be_cut(each) else Choice((each,))
        taken.append(each)
    return Choice(tuple(taken))
