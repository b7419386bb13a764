"""Debezium's JSON, in and out: changes as lines, lines as changes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.contract import BAD_POSITION, RECORD_POSITION
from resurgence.connectors.formats.contract import VALUE
from resurgence.connectors.formats.debezium import events as debezium_json
from resurgence.connectors.formats.debezium.reader import DebeziumReader
from resurgence.graph.values import CHANGE, Column
from tests.engine.connectors.text_records import text_records

COLUMNS = (
    Column(name="id", type="BIGINT", nullable=False),
    Column(name="name", type="STRING"),
    Column(name="at", type="TIMESTAMP"),
)
READER = DebeziumReader(COLUMNS)
SCHEMA = "id BIGINT, name STRING, at TIMESTAMP"
NOON = datetime(2024, 5, 6, 12)
AT = "2024-05-06T12:00:00"


def parsed(spark: SparkSession, texts: Sequence[str | None]) -> DataFrame:
    lines = text_records(spark, enumerate(texts))
    return READER.parse(lines)


def rendered(rows: DataFrame, keys: tuple[str, ...]) -> list[dict[str, object]]:
    found = debezium_json.render(rows, keys).collect()
    return [json.loads(each[VALUE]) for each in found]


def changes(spark: SparkSession, rows: list[tuple[object, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, f"{SCHEMA}, {CHANGE} INT").repartition(3)


def row(number: int, name: str | None = None) -> dict[str, object]:
    return {"id": number, "name": name, "at": AT}


def line(op: str, before: object = None, after: object = None) -> dict[str, object]:
    return {"before": before, "after": after, "op": op}


def test_lines_become_inserts_and_deletes(spark: SparkSession) -> None:
    texts = [
        json.dumps(line("r", None, row(1, "a"))),
        json.dumps(line("c", None, row(2))),
        json.dumps({**line("u", row(1, "a"), row(1, "b")), "ts_ms": 5, "source": {"db": "x"}}),
        json.dumps(line("d", row(2), None)),
    ]
    found = parsed(spark, texts)
    assert found.columns == ["id", "name", "at", CHANGE, RECORD_POSITION, BAD_POSITION]
    assert [tuple(each) for each in found.drop(RECORD_POSITION).collect()] == [
        (1, "a", NOON, 1, None),
        (2, None, NOON, 1, None),
        (1, "a", NOON, -1, None),
        (1, "b", NOON, 1, None),
        (2, None, NOON, -1, None),
    ]


BAD = {
    '{"before": null, "after": {"id": 1}, "op": "c"': ("not JSON", 47),
    "[1]": ("not a JSON object", 1),
    '{"after": {"id": 1}}': ("'op' must be one of c, r, u, d, t, m, but is missing", 1),
    '{"after": {"id": 1}, "op": "x"}': ("'op' must be one of c, r, u, d, t, m, but is \"x\"", 22),
    '{"after": {"id": 1}, "op": "t"}': ("a truncate requires a table with a PRIMARY KEY", 22),
    '{"before": {"id": 1, "name": "a"}, "after": null, "op": "d"}': (
        "'before' lacks the column 'at'",
        12,
    ),
    '{"before": null, "after": {"id": 1}, "op": "u"}': ("'before' is missing", 2),
    '{"before": null, "after": {"id": 1}, "op": "d"}': ("'before' is missing", 2),
    '{"after": null, "op": "c"}': ("'after' is missing", 2),
    '{"after": {"name": "a"}, "op": "c"}': ("in 'after', 'id' is NOT NULL", 11),
    '{"after": {"id": 1, "at": "x"}, "op": "c"}': ("in 'after', 'at' is not a TIMESTAMP", 27),
    '{"before": {"id": "x"}, "after": {"id": 1}, "op": "u"}': (
        "in 'before', 'id' is not a BIGINT",
        19,
    ),
}


def test_bad_lines_are_marked_and_explained(spark: SparkSession) -> None:
    good = json.dumps(line("c", None, row(1)))
    found = parsed(spark, [good, *BAD, None, good])
    assert [each["offset"] for each in found.select(f"{BAD_POSITION}.offset").collect()] == [
        None,
        *range(1, len(BAD) + 2),
        None,
    ]


@pytest.mark.parametrize("text", BAD)
def test_errors_of_a_line_are_reported_with_their_position(text: str) -> None:
    reason, column, _ = READER.explain(text.encode())
    wanted, place = BAD[text]
    assert reason.startswith(wanted), reason
    assert column == place


def test_a_delete_and_an_insert_of_one_key_are_an_update(spark: SparkSession) -> None:
    rows = changes(
        spark,
        [
            (1, "a", NOON, -1),
            (1, "b", NOON, 1),
            (2, None, NOON, 1),
            (3, "c", NOON, -1),
            (4, "same", NOON, 1),
            (4, "same", NOON, -1),
            (None, "x", NOON, -1),
            (None, "y", NOON, 1),
            (None, "z", NOON, 1),
        ],
    )
    found = rendered(rows, ("id",))
    assert sorted(map(json.dumps, (each for each in found if _key(each) is not None))) == sorted(
        map(
            json.dumps,
            [
                line("u", row(1, "a"), row(1, "b")),
                line("c", None, row(2)),
                line("d", row(3, "c"), None),
            ],
        )
    )
    assert [each["op"] for each in found if _key(each) is None] == ["u", "c"]


def _key(change: dict[str, object]) -> object:
    held = change["before"] or change["after"]
    assert isinstance(held, dict)
    return held["id"]


def test_without_keys_deletes_precede_inserts(spark: SparkSession) -> None:
    rows = changes(spark, [(1, "b", NOON, 1), (1, "a", NOON, -1), (2, "c", NOON, 1)]).coalesce(1)
    found = rendered(rows, ())
    assert found[0] == line("d", row(1, "a"))
    assert sorted(map(json.dumps, found[1:])) == sorted(
        json.dumps(line("c", None, each)) for each in (row(1, "b"), row(2, "c"))
    )


def test_append_only_rows_are_written_as_creates(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, "a", NOON), (2, None, NOON)], SCHEMA)
    assert rendered(rows, ("id",)) == [
        line("c", None, row(1, "a")),
        line("c", None, row(2)),
    ]


def test_written_changes_are_read_back_unchanged(spark: SparkSession) -> None:
    given = [(1, "a", NOON, -1), (1, "b", NOON, 1), (2, 'q"\n', NOON, 1), (3, None, None, -1)]
    for keys in (("id",), ()):
        texts = [each[VALUE] for each in _lines(changes(spark, list(given)), keys)]
        found = [tuple(each) for each in parsed(spark, texts).drop(RECORD_POSITION).collect()]
        assert Counter(found) == Counter((*each, None) for each in given)


def _lines(rows: DataFrame, keys: tuple[str, ...]) -> list[dict[str, str]]:
    return [each.asDict() for each in debezium_json.render(rows, keys).collect()]
