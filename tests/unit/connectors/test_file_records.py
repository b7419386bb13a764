"""The records of a `filesystem` sink, and the names of its files: pure."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from resurgence.connectors.commit_log import EntryKind, LogEntry
from resurgence.connectors.filesystem.file_names import FileNames, epoch_in
from resurgence.connectors.filesystem.log_end import LogEnd
from resurgence.connectors.filesystem.records import (
    HeldPart,
    Record,
    Span,
    commit_record,
    flush_record,
    held_parts,
    oldest,
    spans,
    surviving,
)
from resurgence.connectors.filesystem.rolling import Part, Rolled
from resurgence.errors import SinkError
from resurgence.ids import Epoch, JobIdentity

JOB = JobIdentity("a1b2c3d4e5f6")


def part(epoch: int, size: int = 10, folder: str = "", number: int = 0) -> Part:
    """Planned at as many microseconds as its epoch."""
    return Part(f"{epoch}-{number}", 1, size, folder, "json", Epoch(epoch), epoch)


def entry(
    epoch: int, record: Record, kind: EntryKind = EntryKind.COMMIT
) -> tuple[LogEntry, Record]:
    return LogEntry(Epoch(epoch), kind, record.content()), record


def holding(epoch: int, taken: tuple[str, ...] = ()) -> tuple[LogEntry, Record]:
    part = HeldPart(path=f"{epoch}", rows=1, bytes=1, suffix="json")
    return entry(epoch, Record(held=(part,), taken=taken, planned_at=epoch))


def retraction(after: int, up_to: int) -> tuple[LogEntry, Record]:
    return LogEntry(Epoch(up_to), EntryKind.RETRACTION, {}, Epoch(after)), Record()


def paths(*entries: tuple[LogEntry, Record]) -> list[str]:
    return [each.path for each in held_parts(entries)]


def test_held_is_what_no_record_has_taken_and_no_rollback_has_retracted() -> None:
    assert paths(holding(1), holding(2), holding(3)) == ["1", "2", "3"]
    assert paths(holding(1), holding(2), holding(3, taken=("1", "2"))) == ["3"]
    flushed = entry(3, Record(taken=("1", "2", "3")), EntryKind.FLUSH)
    assert paths(holding(1), holding(2), holding(3), flushed) == []
    assert paths(holding(1), holding(2), holding(3), retraction(1, 3), holding(4)) == ["1", "4"]
    assert [e.path for e in held_parts([holding(1), holding(2)], [(Epoch(1), Epoch(2))])] == ["1"]


def test_what_a_dead_epoch_has_taken_stays_taken() -> None:
    """Its file is cut to these rows, and they are still visible."""
    assert paths(holding(1), holding(2, taken=("1",)), retraction(1, 2)) == []


def test_the_oldest_held_epoch_bounds_the_records_that_are_needed() -> None:
    assert oldest(held_parts([holding(4), holding(7)])) == 4
    assert oldest(()) is None


def test_a_rolled_file_knows_the_rows_of_each_epoch() -> None:
    parts = [part(1, 5), part(2, 6), part(2, 7, number=1)]
    assert spans(parts) == (Span(Epoch(1), 1, 5), Span(Epoch(2), 2, 13))


@pytest.mark.parametrize(("after", "rows", "size"), [(1, 1, 5), (2, 3, 18), (9, 3, 18)])
def test_a_rollback_keeps_the_first_rows_of_a_file(after: int, rows: int, size: int) -> None:
    record = Record(files=("x",), spans=(spans([part(1, 5), part(2, 6), part(2, 7)]),))
    (kept,) = surviving(record, ["name"], Epoch(after))
    assert (kept.name, kept.rows, kept.bytes) == ("name", rows, size)


def test_a_rollback_keeps_nothing_of_a_file_whose_epochs_are_all_dead() -> None:
    record = Record(files=("x",), spans=(spans([part(3), part(4)]),))
    assert surviving(record, ["name"], Epoch(2)) == ()


def test_a_record_is_stored_without_what_is_empty() -> None:
    assert Record(files=("a",)).content() == {"files": ["a"]}
    assert Record().content() == {"files": []}
    whole = Record(
        files=("a",),
        names=("k=1/x.json",),
        spans=((Span(Epoch(1), 2, 3),),),
        held=(HeldPart(path="p", rows=1, bytes=2, folder="k=1", suffix="json"),),
        taken=("q",),
        planned_at=7,
        since=Epoch(1),
    )
    assert Record.parse(whole.content(), "here") == whole


def test_a_record_of_an_older_release_is_read() -> None:
    content: dict[str, JsonValue] = {"version": 1, "files": ["a", "b"], "input": {"sources": {}}}
    assert Record.parse(content, "here") == Record(files=("a", "b"))


@pytest.mark.parametrize("content", [{"files": 3}, {"files": ["a"], "names": ["b", "c"]}])
def test_a_damaged_record_is_an_error(content: dict[str, object]) -> None:
    with pytest.raises(SinkError, match="in here is damaged"):
        Record.parse(content, "here")  # type: ignore[arg-type]


def test_a_commit_holds_its_own_parts_and_takes_those_of_earlier_epochs() -> None:
    first, second, third = part(1), part(2, folder="k=1"), part(2)
    rolled = Rolled(files=((first, third),), held=(second,))
    record = commit_record(Epoch(2), rolled, ["merged"], planned_at=2)
    assert record.files == ("merged",)
    assert record.taken == ("1-0",)
    assert [each.path for each in record.held] == ["2-0"]
    assert (record.since, record.planned_at) == (2, 2)
    end = LogEnd(Epoch(1), None, (first,)).committed(Epoch(2), record, is_ours=True)
    assert (end.newest, end.held) == (2, (second,))
    assert end.committed(Epoch(2), record, is_ours=True) is end


def test_a_flush_takes_everything_that_is_held() -> None:
    parts = (part(1), part(2))
    record = flush_record(Rolled(files=(parts,)), ["merged"], ("name.json",))
    assert record.taken == ("1-0", "2-0")
    assert LogEnd(Epoch(2), None, parts, is_ours=False).flushed(record) == LogEnd(Epoch(2))


def test_the_epoch_of_a_file_is_in_its_name() -> None:
    names = FileNames("json", "fares")
    files = [[part(1, folder="k=1")], [part(1)]]
    committed = names.committed(JOB, Epoch(3), files)
    assert committed == (
        f"k=1/fares-{JOB}-0000000003-00000.json",
        f"fares-{JOB}-0000000003-00001.json",
    )
    flushed = names.flushed(JOB, Epoch(4), None, files)
    retracted = names.flushed(JOB, Epoch(4), Epoch(2), files)
    assert len({*committed, *flushed, *retracted}) == 6
    assert {epoch_in(each, JOB) for each in committed} == {3}
    assert {epoch_in(each, JOB) for each in (*flushed, *retracted)} == {4}
    for other in ("fares.json", f"{JOB}-3-00000.json", committed[0].replace("a1", "b1")):
        assert epoch_in(other, JOB) is None


def test_names_are_recorded_and_those_of_older_releases_follow_from_the_epoch() -> None:
    record, names = Record(files=("x", "y")), FileNames("json")
    files = [[part(3)], [part(3)]]
    expected = names.committed(JOB, Epoch(3), files)
    assert names.recorded(JOB, Epoch(3), record) == expected
    named = names.with_names(record, JOB, Epoch(3), files)
    assert FileNames("csv").recorded(JOB, Epoch(3), named) == expected
