"""What a rollback removes, and when it cannot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from resurgence.connectors.contract import CoveredInput
from resurgence.connectors.iceberg.writing.marker import Marker, Writer
from resurgence.connectors.iceberg.writing.rollback import (
    SnapshotOrigin,
    is_undone,
    require_all_live,
    snapshot_before,
)
from resurgence.errors import SinkConflict, SinkError
from resurgence.ids import NO_EPOCH, Epoch, JobIdentity

WRITER = Writer(JobIdentity("a1b2"), "sink-out")
OTHER = Writer(JobIdentity("ffff"), "sink-out")


def history(*origins: int | Writer | None) -> list[SnapshotOrigin]:
    """Snapshots 1, 2, ... by the epoch of the sink, or by another writer; newest first."""
    found = []
    for number, each in enumerate(origins, start=1):
        summary: Mapping[str, str] = {}
        if isinstance(each, Writer):
            summary = each.snapshot_properties(Epoch(5))
        elif each is not None:
            summary = WRITER.snapshot_properties(Epoch(each))
        found.append(SnapshotOrigin(number, number - 1 or None, summary, number == 1))
    return found[::-1]


def before(found: list[SnapshotOrigin], after: int, up_to: int) -> int | None:
    return snapshot_before("db.t", found, WRITER, Epoch(after), Epoch(up_to))


def test_the_snapshot_before_the_dead_epochs_is_restored() -> None:
    assert before(history(None, 1, 2, 3), 1, 3) == 2
    assert before(history(1, 2), 0, 2) is None
    assert before(history(OTHER, 1), 0, 1) == 1


@pytest.mark.parametrize("foreign", [None, OTHER])
def test_a_rollback_is_refused_if_others_wrote_since(foreign: Writer | None) -> None:
    with pytest.raises(SinkConflict, match="snapshot 3 was written by others since"):
        before(history(1, 2, foreign), 1, 2)
    with pytest.raises(SinkConflict, match="snapshot 3 was written by others since"):
        before(history(1, 2, foreign, 3), 1, 3)


def test_compactions_since_are_undone() -> None:
    found = history(1, 2, None, 3, None)
    moved = [replace(each, moves_rows=each.id in (3, 5)) for each in found]
    assert before(moved, 1, 3) == 1
    with pytest.raises(SinkConflict, match="snapshot 5 was written by others since"):
        before([replace(each, moves_rows=each.id == 3) for each in found], 1, 3)


def test_a_rollback_is_refused_if_the_snapshot_before_has_expired() -> None:
    with pytest.raises(SinkConflict, match="the snapshot before them has expired"):
        before(history(1, 2, 3)[:2], 1, 3)
    cut = [replace(each, parent=None) for each in history(1, 2)[:1]]
    with pytest.raises(SinkConflict, match="the snapshot before them has expired"):
        before(cut, 1, 2)
    with pytest.raises(SinkConflict, match="has expired"):
        before(history(1, 2, 3, None)[:1], 1, 3)


def test_epochs_that_somebody_has_removed_already_need_no_retraction() -> None:
    assert before(history(1), 1, 3) == 1
    assert before([], 0, 3) is None
    assert is_undone(history(1, None), WRITER, Epoch(1))
    assert not is_undone(history(1, None)[:1], WRITER, Epoch(0))


def test_files_that_were_merged_cannot_be_retracted() -> None:
    require_all_live("db.t", ["a"], {"a", "b"}, Epoch(1), Epoch(2))
    with pytest.raises(SinkConflict, match="merged or rewritten 1 of their files, such as a"):
        require_all_live("db.t", ["a", "b"], {"b"}, Epoch(1), Epoch(2))


def test_a_marker_is_read_as_it_was_set() -> None:
    marker = Marker(Epoch(7), CoveredInput(sources={}))
    assert WRITER.read(WRITER.properties(marker)) == marker
    assert OTHER.read(WRITER.properties(marker)) == Marker(NO_EPOCH)
    retracted = Marker(Epoch(7), retracted_after=Epoch(3))
    assert WRITER.read(WRITER.properties(retracted)) == retracted


def test_a_retraction_ranks_after_its_epochs_and_before_the_next_one() -> None:
    markers = [
        Marker(Epoch(6)),
        Marker(Epoch(7)),
        Marker(Epoch(7), retracted_after=Epoch(3)),
        Marker(Epoch(7), retracted_after=Epoch(0)),
        Marker(Epoch(8)),
    ]
    assert sorted(markers, key=lambda each: each.rank) == markers


@pytest.mark.parametrize("text", ["7", "{}", "{", '{"epoch": "x"}'])
def test_a_damaged_marker_is_an_error(text: str) -> None:
    with pytest.raises(SinkError, match="is damaged"):
        WRITER.read({WRITER.property_name: text})
