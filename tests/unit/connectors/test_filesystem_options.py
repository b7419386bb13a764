"""The options of a `filesystem` sink: sizes, patterns, columns, compression."""

from __future__ import annotations

from datetime import timedelta

import pytest

from resurgence.connectors.byte_size import parse_size
from resurgence.connectors.filesystem import FilesystemSink, FilesystemSinkOptions
from resurgence.connectors.filesystem.partitions import (
    column_folder_sql,
    folder_sql,
    missing_columns,
    time_folder_sql,
)
from resurgence.connectors.formats.contract import WriteSettings
from resurgence.connectors.formats.csv_text import CSV
from resurgence.connectors.formats.debezium.events import DEBEZIUM_JSON
from resurgence.connectors.formats.json.lines import JSON
from resurgence.connectors.formats.parquet_files import PARQUET
from resurgence.connectors.formats.raw_values import RAW_STRING
from resurgence.errors import UserError
from resurgence.graph.table_options import TableOptions


def options(**given: str) -> FilesystemSinkOptions:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return FilesystemSinkOptions.read({"path": "memory:///out", **named})


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("2000000000", 2_000_000_000),
        ("128MB", 128_000_000),
        ("64 MiB", 64 * 1024 * 1024),
        ("1.5k", 1500),
        ("1gb", 10**9),
        ("10b", 10),
    ],
)
def test_sizes_are_numbers_of_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "MB", "1 apple", "1i", "0.1"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


def test_options_are_parsed() -> None:
    found = options(
        rolling_policy__file_size="1MB",
        rolling_policy__interval="6000 seconds",
        partitioning__fields="[a, b]",
        partitioning__time_pattern="%Y/%m",
    )
    assert (found.file_size, found.interval) == (1_000_000, timedelta(seconds=6000))
    assert found.fields == ("a", "b")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rolling_policy.interval", "0s"),
        ("rolling_policy.interval", "soon"),
        ("rolling_policy.file_size", "large"),
        ("partitioning.fields", "a,,b"),
        ("partitioning.fields", "a, a"),
        ("partitioning.time_pattern", "%Q"),
        ("partitioning.time_pattern", "%"),
        ("partitioning.time_pattern", "%%"),
        ("partitioning.time_pattern", "/%Y"),
        ("partitioning.time_pattern", "%Y//%m"),
        ("partitioning.time_pattern", "../%Y"),
        ("partitioning.time_pattern", "_%Y"),
        ("partitioning.time_pattern", "%Y'"),
        ("partitioning.time_pattern", ""),
        ("filename.prefix", "a/b"),
        ("filename.prefix", ".a"),
        ("filename.prefix", ""),
        ("parquet.compression", "brotli"),
        ("json.compression", "zstd"),
    ],
)
def test_invalid_values_are_refused(name: str, value: str) -> None:
    with pytest.raises(UserError, match=f"is not a valid value for option '{name}'"):
        FilesystemSinkOptions.read({"path": "out", name: value})


def test_the_folder_of_a_time_is_a_concatenation() -> None:
    assert time_folder_sql("y=%Y/%m") == (
        "coalesce(concat('y=', date_format(`__event_time`, 'yyyy'), '/', "
        "date_format(`__event_time`, 'MM')), '__HIVE_DEFAULT_PARTITION__')"
    )


def test_the_folders_of_time_precede_those_of_columns() -> None:
    sql = folder_sql("%Y", ["a", "b"])
    assert sql.index("__event_time") < sql.index("'a='") < sql.index("'b='")


def test_names_of_columns_are_escaped() -> None:
    assert column_folder_sql("a/b").startswith("concat('a%2Fb=',")


def test_columns_are_compared_as_sql_compares_them() -> None:
    assert missing_columns(["A", "c"], ["a", "b"]) == ["c"]


def test_each_format_has_its_compression() -> None:
    assert options().compression(PARQUET) is None
    gzip = options(json__compression="gzip").compression(JSON)
    assert gzip is not None
    assert gzip.suffix == ".gz"
    assert options(json__compression="gzip").compression(DEBEZIUM_JSON) == gzip
    assert options(csv__compression="gzip").compression(CSV) == gzip
    assert options(parquet__compression="zstd").compression(PARQUET) is not None


@pytest.mark.parametrize("chosen", [CSV, PARQUET, RAW_STRING])
def test_the_compression_of_another_format_is_refused(chosen: object) -> None:
    with pytest.raises(UserError, match=r"'json.compression' does not apply"):
        options(json__compression="gzip").compression(chosen)  # type: ignore[arg-type]


def test_a_changelog_is_partitioned_by_its_key_only() -> None:
    settings = WriteSettings(TableOptions(), keys=("id",))
    made = FilesystemSink(options(partitioning__fields="id, city"), settings, DEBEZIUM_JSON)
    with pytest.raises(UserError, match="cannot be partitioned by 'city'"):
        made.check()
    FilesystemSink(options(partitioning__fields="id"), settings, DEBEZIUM_JSON).check()


def test_unknown_columns_are_refused_before_spark_starts() -> None:
    settings = WriteSettings(TableOptions())
    made = FilesystemSink(options(partitioning__fields="knd"), settings, PARQUET, ("kind", "id"))
    with pytest.raises(UserError, match="'knd', which does not exist") as raised:
        made.check()
    assert "kind" in raised.value.hint
