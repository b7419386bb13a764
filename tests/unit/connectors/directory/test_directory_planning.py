"""What a folder's source reads next: pure decisions over names, sizes and modified times."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterable
from dataclasses import replace

import pytest

from resurgence.connectors.directory.files import Piece, identity
from resurgence.connectors.directory.options import FileOrder
from resurgence.connectors.directory.planning import (
    Budget,
    Choice,
    Search,
    Unread,
    chosen,
    still_unread,
)
from resurgence.connectors.directory.positions import Key, Ledger, Position, advanced, ledger
from resurgence.storage.local_files import StoredFile

OLD = 10**18
"""No file here is young."""


def file(path: str, modified: int = 0, size: int = 100) -> StoredFile:
    return StoredFile(path, size, modified, f"{zlib.crc32(path.encode()):x}")


def start(order: FileOrder) -> Position:
    return Position(order=order, selection="all", passed_modified=-(2**62))


def read(position: Position, files: Iterable[StoredFile], remembered: int = 3) -> Position:
    listed = [*files]
    return advanced(position, listed, [Piece(*each) for each in listed], None, remembered)


def paths(files: Iterable[StoredFile]) -> list[str]:
    return [each.path for each in files]


def unread_among(
    listed: Iterable[StoredFile], position: Position, most: int, young_from: int, most_young: int
) -> Unread:
    search = Search(position, most, young_from, most_young)
    search.add(listed)
    return search.unread()


def unread(
    files: list[StoredFile], position: Position, most: int = 1000, young: int = 1000
) -> list[str]:
    return paths(unread_among(files, position, most, OLD, young).files)


def test_files_are_read_by_modified_time_and_then_by_name() -> None:
    files = [file("b", 5), file("a", 5), file("z", 1), file("c", 9)]
    assert unread(files, start(FileOrder.MODIFIED)) == ["z", "a", "b", "c"]


def test_a_file_that_was_read_is_not_read_again() -> None:
    files = [file(str(number), number) for number in range(20)]
    position = read(start(FileOrder.MODIFIED), files[:12])
    assert unread(files, position) == [str(number) for number in range(12, 20)]


def test_a_file_that_appears_after_a_few_newer_ones_is_read() -> None:
    files = [file(str(number), number * 10) for number in range(20)]
    position = read(start(FileOrder.MODIFIED), files)
    late = file("late", 185)
    assert unread([*files, late], position) == ["late"]
    assert unread([*files, late], read(position, [late])) == []


def test_a_file_that_appears_after_more_newer_ones_than_are_named_is_noticed() -> None:
    files = [file(str(number), number * 10) for number in range(20)]
    position = read(start(FileOrder.MODIFIED), files)
    late = [*files, file("late", 15)]
    found = unread_among(late, position, 1000, OLD, 1000)
    assert found.files == ()
    assert found.passed.has_more_than(position.ledger)
    assert not unread_among(files, position, 1000, OLD, 1000).passed.has_more_than(position.ledger)


def test_a_file_that_changed_after_it_was_passed_is_noticed() -> None:
    files = [file(str(number), number) for number in range(20)]
    position = read(start(FileOrder.NAME), sorted(files))
    changed = [each._replace(etag="other") if each.path == "3" else each for each in files]
    listed = ledger(len(changed), sum(map(identity, changed)))
    assert listed.has_more_than(position.ledger)


def test_files_that_were_removed_after_they_were_read_are_no_failure() -> None:
    files = [file(str(number), number) for number in range(20)]
    position = read(start(FileOrder.MODIFIED), files)
    found = unread_among(files[9:], position, 1000, OLD, 1000)
    assert not found.passed.has_more_than(position.ledger)


def test_only_as_many_young_files_are_taken_as_a_position_names() -> None:
    files = [file(str(number), number) for number in range(10)]
    found = unread_among(files, start(FileOrder.MODIFIED), 1000, 4, 3)
    assert paths(found.files) == [str(number) for number in range(8)]
    assert not found.is_complete


def test_the_first_of_many_unread_files_are_held_in_memory() -> None:
    files = [file(f"{number:05}", number) for number in range(9000)]
    random.Random(4).shuffle(files)
    found = unread_among(files, start(FileOrder.MODIFIED), 100, OLD, 0)
    assert paths(found.files) == [f"{number:05}" for number in range(100)]
    assert not found.is_complete


def test_a_bounded_source_passes_over_files_after_its_stop() -> None:
    position = start(FileOrder.MODIFIED).model_copy(update={"stop": (5, "m")})
    files = [file("m", 5), file("n", 5), file("a", 6), file("z", 4)]
    found = unread_among(files, position, 1000, OLD, 1000)
    assert paths(found.files) == ["z", "m"]
    assert found.is_complete


def test_what_is_left_of_a_listing_follows_from_the_position() -> None:
    files = [file(str(number), number) for number in range(9)]
    listing = unread_among(files, start(FileOrder.MODIFIED), 1000, OLD, 1000)
    position = read(start(FileOrder.MODIFIED), files[:7])
    assert paths(still_unread(listing, position).files) == ["7", "8"]


@pytest.mark.parametrize("order", FileOrder)
def test_an_offset_stays_small_over_a_million_files(order: FileOrder) -> None:
    """The names of an epoch's files and of the recent ones are in it, and no others."""
    position, sizes = start(order), []
    for first in range(0, 1_000_000, 10_000):
        files = [
            StoredFile(
                f"day=2024-03-01/{number:09}-{number * 7_654_321 % 2**64:016x}.json",
                1000,
                1_700_000_000_000_000 + number * 1000,
                f"{number * 123_456_789_123_456_789 % 2**128:032x}",
            )
            for number in range(first, first + 10_000)
        ]
        pieces = [Piece(*each) for each in files[-500:]]
        position = advanced(position, files, pieces, None, 500)
        sizes.append(len(json.dumps(position.as_offset())))
    assert position.passed_files + len(position.recent_files()) == 1_000_000
    assert sizes[-1] < 90_000
    assert sizes[-1] < 1.05 * sizes[1]


def test_a_position_survives_its_offset() -> None:
    files = [file("ä/ü.json", 7), file("b", 8)]
    rest = Piece(*files[1], start=10, end=100, line=3)
    position = advanced(start(FileOrder.MODIFIED), files, [Piece(*files[0], end=9)], rest, 1)
    again = Position.of(json.loads(json.dumps(position.as_offset())))
    assert again == position
    assert again.pieces() == [Piece(*files[0], end=9)]
    assert again.rest_piece() == rest
    assert again.passed == Key(7, "ä/ü.json")
    assert [each.key for each in again.recent_files()] == [Key(8, "b")]


def test_sets_of_files_are_compared_by_number_and_identity() -> None:
    one, other = ledger(1, identity(file("a"))), ledger(1, identity(file("b")))
    assert (one + other) - other == one
    assert one.has_more_than(other)
    assert not one.has_more_than(one)
    assert (one + other).has_more_than(one)
    assert not Ledger().has_more_than(one)


def choose(sizes: list[int], budget: Budget, *, can_be_cut: bool = True) -> Choice:
    pieces = [Piece(str(place), size, 0, "", end=size) for place, size in enumerate(sizes)]
    return chosen(
        pieces, budget, lambda each: each.size // 10, lambda each: each.size, lambda _: can_be_cut
    )


@pytest.mark.parametrize(
    ("budget", "taken"),
    [
        (Budget(files=10, rows=1000, bytes=1000), 4),
        (Budget(files=3, rows=1000, bytes=1000), 3),
        (Budget(files=10, rows=25, bytes=1000), 2),
        (Budget(files=10, rows=1000, bytes=350), 3),
    ],
)
def test_an_epoch_is_limited_by_files_rows_and_bytes(budget: Budget, taken: int) -> None:
    choice = choose([100, 100, 100, 100], budget)
    assert [each.path for each in choice.whole] == [str(place) for place in range(taken)]
    assert choice.cut is None


def test_a_file_that_does_not_fit_alone_is_cut_or_is_an_epoch_by_itself() -> None:
    budget = Budget(files=10, rows=50, bytes=10_000)
    choice = choose([1000, 100], budget)
    assert (choice.whole, choice.cut and choice.cut.path) == ((), "0")
    whole = choose([1000, 100], budget, can_be_cut=False)
    assert ([each.path for each in whole.whole], whole.cut) == (["0"], None)
    later = choose([100, 1000], replace(budget, rows=60))
    assert [each.path for each in later.whole] == ["0"]
