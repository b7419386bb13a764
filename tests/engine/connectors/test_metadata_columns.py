"""METADATA FROM: columns that a connector provides about each record."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.connectors.registry import CONNECTORS
from resurgence.errors import BadRecord, SqlError
from resurgence.sql import compile_pipeline
from tests.engine.harness import Job, Leg, read_lines, sink_table

LINES = ['{"a": 1, "number": 77}', "", '{"a": null, "origin": "x"}', '{"a": 3}', '{"a": 4}']


def job_of(spark: SparkSession, folder: Path, columns: str, options: str = "") -> Job:
    path = folder / "it's in.json"
    path.write_text("\n".join(LINES))
    sql = (
        f"CREATE TABLE events ({columns}) WITH (connector = 'single_file',"
        f" path = '{str(path).replace(chr(39), chr(39) * 2)}', type = 'source'{options});\n"
    )
    sql += sink_table(folder / "out.json", name="out", connector="single_file")
    return Job(spark, folder, f"{sql}INSERT INTO out SELECT * FROM events")


def test_a_record_knows_its_file_and_its_line_in_any_epoch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """They are not looked for in the record, and what is computed may use them."""
    columns = (
        "number BIGINT NOT NULL METADATA FROM 'line', a INT, origin TEXT METADATA FROM 'path',"
        " next BIGINT AS (number + 1)"
    )
    job_of(spark, tmp_path, columns).run([Leg(2, 1, epochs=1), Leg(1, 2)])
    origin = str(tmp_path / "it's in.json")
    assert read_lines(tmp_path / "out.json") == [
        {"number": line, "a": a, "origin": origin, "next": line + 1}
        for line, a in [(1, 1), (3, None), (4, 3), (5, 4)]
    ]


def test_a_table_may_have_metadata_columns_only(spark: SparkSession, tmp_path: Path) -> None:
    job_of(spark, tmp_path, "line BIGINT METADATA FROM 'line'").run()
    assert read_lines(tmp_path / "out.json") == [{"line": each} for each in (1, 3, 4, 5)]


def test_unstructured_text_has_metadata_columns_too(spark: SparkSession, tmp_path: Path) -> None:
    columns = "line BIGINT METADATA FROM 'line', value TEXT"
    job_of(spark, tmp_path, columns, ", json.unstructured = 'true'").run()
    assert read_lines(tmp_path / "out.json") == [
        {"line": number, "value": line} for number, line in enumerate(LINES, start=1) if line
    ]


def test_a_bad_record_is_explained_by_its_content(spark: SparkSession, tmp_path: Path) -> None:
    columns = "number BIGINT NOT NULL METADATA FROM 'line', a INT NOT NULL"
    with pytest.raises(BadRecord, match="line 3, column 2: 'a' is NOT NULL and has no value"):
        job_of(spark, tmp_path, columns).run()


def test_a_changelog_has_no_metadata_columns() -> None:
    text = (
        "CREATE TABLE t (a INT, b BIGINT METADATA FROM 'line') WITH (connector = 'single_file',"
        " path = 'x', type = 'source', format = 'debezium_json'); SELECT * FROM t"
    )
    with pytest.raises(SqlError, match="debezium_json records have no metadata") as caught:
        compile_pipeline(text, CONNECTORS)
    assert "Remove the column 'b'" in caught.value.hint
