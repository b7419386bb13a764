"""Sources and partitions without rows for their idle timeout."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from resurgence.connectors.contract import PartitionSpan
from resurgence.engine.epochs.idleness import Idleness
from resurgence.graph.specs.source import SourceSpec
from resurgence.ids import OperatorId

SOURCE = OperatorId("source-a")
NOW = datetime(2024, 1, 1, tzinfo=UTC)


def idleness(idle_micros: int | None = 10_000_000) -> Idleness:
    spec = SourceSpec(
        id=SOURCE, table="a", connector="c", options={}, columns=(), idle_micros=idle_micros
    )
    return Idleness([spec])


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def spans(*rows: int) -> list[PartitionSpan]:
    return [PartitionSpan(f"a/{number}", number, count) for number, count in enumerate(rows)]


def test_a_source_is_idle_after_its_timeout_without_rows() -> None:
    found = idleness()
    assert not found.is_idle(SOURCE, NOW)
    assert not found.is_idle(SOURCE, after(9))
    assert found.is_idle(SOURCE, after(10))
    found.note_rows(SOURCE, after(11))
    assert not found.is_idle(SOURCE, after(20))
    assert not idleness(None).is_idle(SOURCE, after(1000))


def test_a_partition_is_idle_after_the_timeout_without_rows_of_its_own() -> None:
    found = idleness()
    assert found.idle_partitions(SOURCE, spans(1, 0), {}, NOW) == ()
    assert found.idle_partitions(SOURCE, spans(1, 0), {}, after(10)) == ("a/1",)
    assert found.idle_partitions(SOURCE, spans(0, 0), {}, after(19)) == ("a/1",)
    assert found.idle_partitions(SOURCE, spans(0, 1), {}, after(20)) == ("a/0",)


def test_a_partition_with_unread_rows_is_not_idle() -> None:
    found = idleness()
    found.idle_partitions(SOURCE, spans(0, 0), {}, NOW)
    assert found.idle_partitions(SOURCE, spans(0, 0), {"a/0": 5}, after(60)) == ("a/1",)


def test_without_a_timeout_nothing_is_idle() -> None:
    found = idleness(None)
    found.idle_partitions(SOURCE, spans(0), {}, NOW)
    assert found.idle_partitions(SOURCE, spans(0), {}, after(10_000)) == ()
