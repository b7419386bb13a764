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


class Search:
    """Finds the first unread files, in the order of modified times, among all files of a listing,
    which is in any order.

    Files that were modified after `young_from` are taken up to `most_young`: as many as a position
    names. So an older file that this listing has missed is not behind what the position has passed
    when the next listing finds it. `young_from` is shortly before the listing begins.
    """

    def __init__(self, position: Position, most: int, young_from: int, most_young: int) -> None:
        self.position = position
        self._most = most
        self._young_from = young_from
        self._most_young = most_young
        self._known = {each.key for each in position.recent_files()}
        self._passed = self._digest = 0
        self._found: list[tuple[Key, StoredFile]] = []
        self._has_dropped = False

    def add(self, listed: Iterable[StoredFile]) -> None:
        """Examine the next files of the listing."""
        position, stop = self.position, self.position.stop_key
        for file in listed:
            key = key_of(position.order, file)
            if key <= position.passed:
                self._passed, self._digest = self._passed + 1, self._digest + identity(file)
            elif key not in self._known and (stop is None or key <= stop):
                self._found.append((key, file))
                if len(self._found) >= 4 * self._most:
                    self._found = heapq.nsmallest(self._most, self._found)
                    self._has_dropped = True

    def unread(self) -> Unread:
        """Return what was found when everything has been examined."""
        has_dropped = self._has_dropped or len(self._found) > self._most
        ordered = [file for _, file in heapq.nsmallest(self._most, self._found)]
        old = [each for each in ordered if each.modified <= self._young_from]
        chosen = old + ordered[len(old) :][: max(0, self._most_young)]
        is_complete = not has_dropped and len(chosen) == len(ordered)
        return Unread(tuple(chosen), is_complete, ledger(self._passed, self._digest))


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
