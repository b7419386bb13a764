"""Dead letters of topics: bad records with key and headers, their replay, and rows that fail."""

from __future__ import annotations

import json

import pytest

from resurgence.state.records import WATERMARKS
from tests.engine.epochs.test_dead_letter_recovery import replay
from tests.engine.epochs.test_dead_letters import assert_ledger_balances, letters
from tests.kafka.test_partition_watermarks import micros
from tests.kafka.topics import COLUMNS, SOURCE, WINDOWS, TopicJob, drained, event, late, rows_in
from tests.servers.kafka_records import Record

DEAD_LETTER = {"bad_data": "dead_letter"}


def test_a_bad_record_becomes_a_dead_letter_and_its_correction_a_row(topics: TopicJob) -> None:
    topic = topics.broker.create_topic(partitions=2)
    bad = Record(b'{"id": "x"}', key=b"k", headers=(("h", b"1"),), partition=1)
    topics.broker.produce(topic, [event(1), bad, Record(None, key=b"gone", partition=1), event(2)])
    columns = f"{COLUMNS}, k BINARY METADATA FROM 'key', o BIGINT METADATA FROM 'offset'"
    query = "INSERT INTO out SELECT id, CAST(k AS STRING) AS k, o FROM events"
    job = topics.job(topic, query, columns=columns, options=DEAD_LETTER)
    (report,) = drained(job.open())
    assert report.counts.dead_rows == {SOURCE: 2}
    assert rows_in([report]) == 4
    first, second = letters(job)
    assert (first["raw"], first["key"], first["headers"]) == (
        b'{"id": "x"}',
        b"k",
        [{"key": "h", "value": b"1"}],
    )
    assert first["position"] == f"{topic}/1@0"
    assert "'at' is NOT NULL" in first["error"]
    assert (second["raw"], second["error"]) == (None, "no value (tombstone)")
    assert_ledger_balances(job)
    replay(job, "1-1", corrected={"1-1": event(7).value or b""})
    (again,) = drained(job.open())
    assert again.counts.rows_in == {SOURCE: 1}
    assert drained(job.open()) == []
    assert {"id": 7, "k": "k", "o": 0} in topics.rows()
    assert topics.ids() == [1, 2, 7]


@pytest.mark.parametrize("has_rows", [False, True])
def test_a_replay_moves_the_watermark_of_no_partition(topics: TopicJob, has_rows: bool) -> None:
    topic = topics.broker.create_topic(partitions=2)
    rows = [event(1, 100, partition=0), event(2, 10, partition=1), Record(b"x", partition=0)]
    topics.broker.produce(topic, rows)
    job = topics.job(topic, WINDOWS, options=DEAD_LETTER)
    (report,) = drained(job.open())
    assert report.watermark == micros(10)
    replay(job, "1-1", corrected={"1-1": event(3, 90).value or b""})
    if has_rows:
        topics.broker.produce(topic, [event(4, 15, partition=1)])
    engine = job.open()
    reports = drained(engine)
    assert rows_in(reports) == 1 + has_rows
    expected = micros(15 if has_rows else 10)
    assert reports[-1].watermark == expected
    marks = reports[-1].checkpoint.operators[SOURCE].tables[WATERMARKS].values
    assert marks == {f"{topic}/0": micros(100), f"{topic}/1": expected}
    topics.broker.produce(topic, [event(5, 20, partition=1)])
    assert late(drained(engine)) == 0


def test_a_row_that_fails_is_left_out_by_its_offset(topics: TopicJob) -> None:
    topic = topics.broker.create_topic(partitions=2)
    rows = [event(each, partition=each % 2, amount="x" if each == 5 else "1") for each in range(9)]
    topics.broker.produce(topic, rows)
    columns = f"{COLUMNS}, amount TEXT"
    query = "INSERT INTO out SELECT id, CAST(amount AS INT) AS amount FROM events"
    job = topics.job(topic, f"SET on_error = 'dead_letter'; {query}", columns=columns)
    (report,) = drained(job.open())
    assert report.counts.dead_rows == {SOURCE: 1}
    (letter,) = letters(job)
    assert letter["position"] == f"{topic}/1@2"
    assert json.loads(letter["raw"])["id"] == 5
    assert topics.ids() == [0, 1, 2, 3, 4, 6, 7, 8]
    assert_ledger_balances(job)
