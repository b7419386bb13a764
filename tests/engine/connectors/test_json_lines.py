"""JSON input and output: which lines are accepted, and how a bad line is reported."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from resurgence.connectors.contract import BAD_POSITION
from resurgence.connectors.formats.contract import VALUE
from resurgence.connectors.formats.json import writer as json_writer
from resurgence.connectors.formats.json.lines import JsonLineReader
from resurgence.connectors.single_file import SingleFileSource, SingleFileSourceOptions
from resurgence.errors import BadRecord, RetryHint, SourceRangeGone
from resurgence.graph.values import Column
from resurgence.state.records import InputRange
from tests.engine.connectors.text_records import line_position
from tests.engine.harness import Job, Leg, sink_table, source_table

NOW = datetime(2024, 1, 1, tzinfo=UTC)
COLUMNS = (
    Column(name="id", type="INT", nullable=False),
    Column(name="name", type="STRING"),
    Column(name="at", type="TIMESTAMP"),
)


def source(path: Path) -> SingleFileSource:
    return SingleFileSource(
        SingleFileSourceOptions.read({"path": str(path)}), JsonLineReader(COLUMNS)
    )


def whole(path: Path, most_rows: int = 1_000_000) -> InputRange:
    opened = source(path)
    return opened.plan(opened.first_offset(NOW, 1), most_rows, NOW)


def read(spark: SparkSession, path: Path, parallelism: int = 2) -> list[tuple[Any, ...]]:
    """(id, name, position of a bad line) of each row that the file gives."""
    rows = source(path).read(spark, whole(path), parallelism)
    return sorted(
        (tuple(each) for each in rows.select("id", "name", f"{BAD_POSITION}.offset").collect()),
        key=repr,
    )


def rendered(spark: SparkSession, select: str) -> str:
    (row,) = json_writer.render(spark.sql(f"SELECT {select}")).collect()
    text = row[VALUE]
    assert isinstance(text, str)
    return text


# --- out


def test_a_row_is_written_as_one_line_with_its_nulls(spark: SparkSession) -> None:
    text = rendered(
        spark,
        "1 AS i, CAST(NULL AS STRING) AS n, 1.50BD AS d, 0.1D AS r, 'ž\\n\"🌊' AS s, true AS b,"
        " DATE '2024-02-29' AS day, 9223372036854775807L AS big, array(1, NULL) AS a",
    )
    assert text == (
        '{"i":1,"n":null,"d":1.50,"r":0.1,"s":"ž\\n\\"🌊","b":true,"day":"2024-02-29",'
        '"big":9223372036854775807,"a":[1,null]}'
    )


def test_timestamps_are_written_without_a_zone_at_any_depth(spark: SparkSession) -> None:
    at = "TIMESTAMP '2024-01-01 00:00:00'"
    fraction = "TIMESTAMP '2024-01-01 00:00:00.120'"
    text = rendered(
        spark,
        f"{at} AS whole, {fraction} AS part, TIMESTAMP '1969-12-31 23:59:59.999999' AS old,"
        f" TIMESTAMP_NTZ '2024-01-01 00:00:00.5' AS ntz, CAST(NULL AS TIMESTAMP) AS none,"
        f" named_struct('at', {at}, 'in', named_struct('at', {fraction}, 'n', 1)) AS struct,"
        f" array(named_struct('ats', array({at}, NULL)), NULL) AS item,"
        f" map('k', {fraction}) AS map, IF(false, named_struct('at', {at}), NULL) AS gone",
    )
    assert json.loads(text) == {
        "whole": "2024-01-01T00:00:00",
        "part": "2024-01-01T00:00:00.120",
        "old": "1969-12-31T23:59:59.999999",
        "ntz": "2024-01-01T00:00:00.500",
        "none": None,
        "struct": {
            "at": "2024-01-01T00:00:00",
            "in": {"at": "2024-01-01T00:00:00.120", "n": 1},
        },
        "item": [{"ats": ["2024-01-01T00:00:00", None]}, None],
        "map": {"k": "2024-01-01T00:00:00.120"},
        "gone": None,
    }


def test_timestamps_are_written_as_milliseconds_if_the_option_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    """And read as such, by the same option."""
    path, out = tmp_path / "in.json", tmp_path / "out.json"
    path.write_text('{"at": 1709294400123, "ats": [1709294400000]}\n')
    millis = ", 'json.timestamp_format' = 'unix_millis'"
    sql = source_table(path, "at TIMESTAMP, ats TIMESTAMP[]", more=millis)
    sql += sink_table(out, name="out", connector="single_file", more=millis)
    Job(spark, tmp_path, f"{sql} INSERT INTO out SELECT at, ats FROM events").run()
    assert json.loads(out.read_text()) == {"at": 1709294400123, "ats": [1709294400000]}


# --- in


@pytest.mark.parametrize(
    ("content", "expected", "lines"),
    [
        (b"", [], 0),
        (b"\n\n", [], 2),
        (b'{"id": 1}', [(1, None, None)], 1),
        (b'{"id": 1}\n', [(1, None, None)], 1),
        (b'{"id": 1}\r\n\r\n{"id": 2}\r\n', [(1, None, None), (2, None, None)], 3),
        (b'\n \t\n{"id": 1}\n\n{"id": 2}', [(1, None, None), (2, None, None)], 5),
        ('{"id": 1, "name": "žluť 🌊", "more": [1]}\n'.encode(), [(1, "žluť 🌊", None)], 1),
        (b'  {"name": "a\\nb", "id": 1}  \n', [(1, "a\nb", None)], 1),
        (b'\xef\xbb\xbf{"id": 1}\n{"id": 2}', [(1, None, None), (2, None, None)], 2),
        (b"\xef\xbb\xbf\n", [], 1),
    ],
)
def test_lines_are_read_however_they_end(
    spark: SparkSession, tmp_path: Path, content: bytes, expected: list[object], lines: int
) -> None:
    path = tmp_path / "in.json"
    path.write_bytes(content)
    planned = whole(path)
    assert (planned.rows, planned.final) == (lines, True)
    assert (planned.end["line"], planned.end["byte"]) == (lines, len(content))
    if lines:
        assert read(spark, path) == expected


def test_a_file_of_several_blocks_is_read_by_several_tasks_with_the_right_line_numbers(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "in.json"
    long_line = json.dumps({"id": -1, "name": "x" * 5_000_000})
    lines = [json.dumps({"id": number, "name": "y" * 400}) for number in range(25_000)]
    for number in (9_000, 24_000):
        lines[number] = "broken"
    lines[12_000] = ""
    lines[20_000] = long_line
    path.write_text("\n".join(lines))
    rows = source(path).read(spark, whole(path), 2)
    assert rows.rdd.getNumPartitions() == 2
    found = rows.selectExpr(
        "count(*)",
        "sum(id)",
        "max(length(name))",
        f"sort_array(collect_list({BAD_POSITION}.offset))",
    ).collect()
    ids = sum(range(25_000)) - 9_000 - 24_000 - 12_000 - 20_000 - 1
    assert [tuple(each) for each in found] == [(24_999, ids, 5_000_000, [9_000, 24_000])]


def test_ranges_of_any_size_join_without_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_bytes(b'{"id": 1}\n\n{"id": 2}\r\n{"id": 3}')
    opened, seen = source(path), []
    offset = opened.first_offset(NOW, 1)
    for _ in range(4):
        planned = opened.plan(offset, 1, NOW)
        start, end = planned.start["byte"], planned.end["byte"]
        assert isinstance(start, int)
        assert isinstance(end, int)
        seen.append(path.read_bytes()[start:end])
        offset = planned.end
    assert seen == [b'{"id": 1}\n', b"\n", b'{"id": 2}\r\n', b'{"id": 3}']
    assert planned.final


def test_a_file_that_became_shorter_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_bytes(b'{"id": 1}\n{"id": 2}\n')
    planned = whole(path)
    path.write_bytes(b'{"id": 1}\n')
    message = (
        r"was truncated or replaced: it has 10 bytes, but the job has read 20 \(up to line 2\)"
    )
    with pytest.raises(SourceRangeGone, match=message):
        source(path).read(spark, planned, 1)
    with pytest.raises(SourceRangeGone, match=message):
        source(path).plan(planned.end, 1, NOW)


def test_a_file_that_was_replaced_by_a_longer_one_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "in.json"
    path.write_bytes(b'{"id": 1}\n{"id": 2}\n{"id": 3}\n')
    first = whole(path, 1)
    second = source(path).plan(first.end, 1, NOW)
    path.write_bytes(b'{"id": 1}\n{"id": 8}\n{"id": 3}\n{"id": 4}\n')
    message = r"was replaced or changed: its first 20 bytes \(up to line 2\) are not those"
    with pytest.raises(SourceRangeGone, match=message) as caught:
        source(path).plan(second.end, 1, NOW)
    assert caught.value.retry_hint is RetryHint.NO_RETRY
    with pytest.raises(SourceRangeGone, match=message):
        source(path).read(spark, second, 1)
    # What stands before the second line is what it was.
    assert source(path).plan(first.end, 1, NOW).end["byte"] == 20


@pytest.mark.parametrize("place", [0, 399_990])
def test_a_large_file_is_identified_by_its_first_and_last_bytes(tmp_path: Path, place: int) -> None:
    path = tmp_path / "in.json"
    content = b"".join(b'{"id": %4d}\n' % (number % 1000) for number in range(40_000))
    path.write_bytes(content)
    planned = whole(path, 30_000)
    path.write_bytes(content + content)
    assert source(path).plan(planned.end, 10, NOW).rows == 10
    byte = planned.end["byte"]
    assert isinstance(byte, int)
    place = min(place, byte - 13)
    path.write_bytes(content[:place] + b'{"id": -999}\n' + content[place + 13 :])
    with pytest.raises(SourceRangeGone, match="was replaced or changed"):
        source(path).plan(planned.end, 10, NOW)


def test_an_offset_without_a_fingerprint_is_accepted(spark: SparkSession, tmp_path: Path) -> None:
    """Records of older releases have none."""
    path = tmp_path / "in.json"
    path.write_bytes(b'{"id": 1}\n{"id": 2}\n{"id": 3}\n')
    planned = source(path).plan({"line": 1, "byte": 10}, 1, NOW)
    assert (planned.end["line"], planned.end["byte"]) == (2, 20)
    bare = InputRange(start={"line": 1, "byte": 10}, end={"line": 2, "byte": 20}, rows=1)
    assert [row.id for row in source(path).read(spark, bare, 1).collect()] == [2]


def test_a_job_does_not_resume_over_a_replaced_file(spark: SparkSession, tmp_path: Path) -> None:
    path, out = tmp_path / "in.json", tmp_path / "out.json"
    path.write_text("".join(f'{{"id": {n}}}\n' for n in range(6)))
    sql = source_table(path, "id INT", delay=None)
    sql += sink_table(out, name="out", connector="single_file")
    job = Job(spark, tmp_path, f"{sql} INSERT INTO out SELECT id FROM events")
    job.open(Leg(2)).run_epoch()
    right = path.read_text()
    path.write_text("".join(f'{{"id": {n}}}\n' for n in range(9, 1, -1)))
    for _ in range(2):
        with pytest.raises(SourceRangeGone, match="was replaced or changed"):
            job.open(Leg(2)).run_epoch()
    path.write_text(right + '{"id": 6}\n')
    job.run([Leg(2)])
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == list(range(7))


BAD_LINES = [
    (b'{"id": 2, "name": }', "column 19: not JSON"),
    (b"what?", "column 1: not JSON"),
    (b'{"id": "two"}', "column 8: 'id' is not a INT: \"two\""),
    (b'{"id": 2.5}', "column 8: 'id' is not a INT: 2.5"),
    (b'{"name": "b", "id": 99999999999}', "column 21: 'id' is not a INT: 99999999999"),
    (b'{"id": 2, "at": "soon"}', "column 17: 'at' is not a TIMESTAMP: \"soon\""),
    (b'{"id": 2, "at": "2024-13-01T00:00:00"}', "column 17: 'at' is not a TIMESTAMP"),
    (b'{"name": "b"}', "column 1: 'id' is NOT NULL and has no value"),
    (b'{"name": "b", "id": null}', "column 15: 'id' is NOT NULL and has no value"),
    (b'[{"id": 2}]', "column 1: not a JSON object"),
    (b"2", "column 1: not a JSON object"),
    (b'{"id": 2, "name": "\xff\xfe"}', "column 20: not UTF-8: byte ff"),
    (b"null", "column 1: not a JSON object"),
    (b'{"id": 2}{"id": 3}', "column 10: more than one JSON value"),
    (b'{"id": 2} {"id": 3}', "column 11: more than one JSON value"),
    (b'{"id": 2},{"id": 3}', "column 10: more than one JSON value"),
    (b'{"id": 2}\r{"id": 3}\r', "column 11: more than one JSON value"),
    (b'{"id": 2} trailing', "column 11: more than one JSON value"),
    (b'{"id": 2},', "column 10: more than one JSON value"),
    (b'{"id": 2},null', "column 10: more than one JSON value"),
    (b'{"id": 2}}', "column 10: more than one JSON value"),
    (b'{"id": 2}]', "column 10: more than one JSON value"),
    (b'{"id": 2}],"end":0}', "column 10: more than one JSON value"),
    (b'{"id": 2}, "end": 0', "column 10: more than one JSON value"),
    (b'{"id": 2}], "record": [{"id": 3}', "column 10: more than one JSON value"),
    (b'{"id": 2}], "more": [{"id": 3}', "column 10: more than one JSON value"),
    (b"{'id': 2}", "column 2: not JSON"),
    (b'{"id": 2, "name": \'b\'}', "column 19: not JSON"),
    (b"{id: 2}", "column 2: not JSON"),
    (b'{"id": 02}', "column 9: not JSON"),
    (b'{"id": 2,}', "column 10: not JSON"),
    (b'{"id": 2 /* two */}', "column 10: not JSON"),
    (b'{"id": 2, "name": "a\tb"}', "column 21: not JSON"),
    (b'{"id": 2, "name": "a\\qb"}', "column 21: not JSON"),
    (b'{"id": 2, "name": ' + b"[" * 2000 + b"]" * 2000 + b"}", "column 1: cannot be parsed"),
    (b'\xef\xbb\xbf{"id": 2}', "column 1: not JSON"),
]


def test_a_bad_line_is_marked_and_explained(spark: SparkSession, tmp_path: Path) -> None:
    """All kinds in one file, each between good lines."""
    path = tmp_path / "in.json"
    path.write_bytes(b"".join(b'{"id": 1}\n' + line + b"\n" for line, _ in BAD_LINES))
    found = read(spark, path)
    assert sorted(bad for _, _, bad in found if bad is not None) == [
        2 * number + 1 for number in range(len(BAD_LINES))
    ]
    assert sum(bad is None for _, _, bad in found) == len(BAD_LINES)
    for number, (_, reason) in enumerate(BAD_LINES):
        error = source(path).bad_record(whole(path), line_position(2 * number + 1))
        assert f"{path}, line {2 * number + 2}, {reason}" in error.message


def test_a_bad_line_stops_the_job_until_it_is_fixed(spark: SparkSession, tmp_path: Path) -> None:
    path, out = tmp_path / "in.json", tmp_path / "out"
    lines = [b'{"at": "2024-01-01T00:00:0%d", "id": %d}\n' % (n, n) for n in range(8)]
    path.write_bytes(b"".join([*lines[:5], b'{"at": "2024-01-01T00:00:05", "id":x}\n', *lines[6:]]))
    sql = source_table(path, "at TIMESTAMP, id INT") + sink_table(out, name="out")
    window = "tumble(INTERVAL '1 minute')"
    sql += f"INSERT INTO out SELECT {window} AS w, sum(id) AS total FROM events GROUP BY w"
    job = Job(spark, tmp_path, sql)
    engine = job.open(Leg(3))
    engine.run_epoch()
    with pytest.raises(BadRecord, match=r"in\.json, line 6, column 36: not JSON"):
        engine.run_epoch()
    with pytest.raises(BadRecord, match="line 6"):
        job.open(Leg(3)).run_epoch()
    path.write_bytes(b"".join(lines))
    assert [each.epoch for each in job.run([Leg(3)])] == [2, 3]
    assert [row.total for row in spark.read.parquet(str(out)).collect()] == [sum(range(8))]


def test_dropped_bad_lines_are_counted_and_affect_no_other_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, out = tmp_path / "in.json", tmp_path / "out"
    bad = b'{"at": "2099-01-01T00:00:00", "id": "late"}\n'  # must not move the watermark
    lines = [b'{"at": "2024-01-01T00:00:0%d", "id": %d}\n' % (n, n) for n in range(6)]
    path.write_bytes(b"".join([bad, *lines[:3], b"nonsense\n", *lines[3:], bad]))
    sql = source_table(path, "at TIMESTAMP, id INT", more=", bad_data = 'drop'")
    sql += sink_table(out, name="out")
    window = "tumble(INTERVAL '2 seconds')"
    sql += f"INSERT INTO out SELECT {window} AS w, count(*) AS n FROM events GROUP BY w"
    job = Job(spark, tmp_path, sql)
    job.run([Leg(4, 2, epochs=1)])
    assert [each.counts.bad_rows for each in job.reports] == [
        {"source-events": 1},
        {"source-events": 2},
    ]
    assert not any(count for each in job.reports for count in each.counts.late_rows.values())
    assert [row.n for row in spark.read.parquet(str(out)).collect()] == [2, 2, 2]


def test_a_bad_first_line_is_explained_without_its_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_bytes(b'\xef\xbb\xbf{"id": x}\n')
    assert (
        "line 1, column 8: not JSON"
        in source(path).bad_record(whole(path), line_position(0)).message
    )
