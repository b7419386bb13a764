"""The options of Iceberg tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from resurgence.connectors.iceberg.catalogs.store_location import split_location, vended_access
from resurgence.connectors.iceberg.options import (
    IcebergSinkOptions,
    IcebergSourceOptions,
    Start,
    StartKind,
    parse_start,
)
from resurgence.connectors.iceberg.partitioning import (
    PartitionTerm,
    partition_terms,
    require_same_partitioning,
)
from resurgence.errors import ConfigError, UserError

PLACE = {"namespace": "a.b", "table_name": "t"}


def test_a_table_is_named_by_all_levels_of_its_namespace() -> None:
    options = IcebergSinkOptions.read({**PLACE, "catalog.rest.url": "http://host"})
    assert options.place().identifier == ("a", "b", "t")


def test_a_token_is_not_shown() -> None:
    token = {"catalog.rest.url": "http://host", "catalog.rest.token": "abc123"}
    options = IcebergSinkOptions.read({**PLACE, **token})
    assert options.place().token == "abc123"
    assert "abc123" not in f"{options!r} {options.place()!r} {options.place()}"


def test_a_local_warehouse_does_not_depend_on_the_working_directory() -> None:
    given = {"catalog.type": "sql", "catalog.sql.uri": "sqlite://", "catalog.warehouse": "wh"}
    assert (
        IcebergSinkOptions.read({**PLACE, **given}).place().warehouse == f"file://{Path.cwd()}/wh"
    )
    named = {"catalog.rest.url": "http://host", "catalog.warehouse": "wh"}
    assert IcebergSinkOptions.read({**PLACE, **named}).place().warehouse == "wh"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "requires the option 'catalog.rest.url'"),
        ({"catalog.type": "sql"}, "requires the option 'catalog.sql.uri'"),
        (
            {"catalog.type": "sql", "catalog.sql.uri": "x", "catalog.rest.url": "y"},
            "'catalog.rest.url' does not apply",
        ),
    ],
)
def test_options_of_another_kind_of_catalog_are_refused(
    given: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        IcebergSinkOptions.read({**PLACE, **given}).place()


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start(StartKind.EARLIEST)),
        ("latest", Start(StartKind.LATEST)),
        ("2024-01-01T00:00:00Z", Start(StartKind.TIMESTAMP, 1704067200000)),
        ("1704067200000", Start(StartKind.TIMESTAMP, 1704067200000)),
        ('{"snapshot": 123}', Start(StartKind.SNAPSHOT, 123)),
    ],
)
def test_a_source_begins_where_its_option_says(text: str, start: Start) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize("text", ["first", "1704067200", '{"version": 1}', '{"snapshot": "x"}'])
def test_other_starts_are_refused(text: str) -> None:
    given = {**PLACE, "catalog.rest.url": "http://host", "source.offset": text}
    with pytest.raises(UserError, match="not a valid value"):
        IcebergSourceOptions.read(given)


def test_partition_fields_are_columns_and_transforms() -> None:
    assert partition_terms("day(at), bucket( 16 ,id ), truncate(4, name), city, hours(at)") == (
        PartitionTerm("at", "day"),
        PartitionTerm("id", "bucket[16]"),
        PartitionTerm("name", "truncate[4]"),
        PartitionTerm("city"),
        PartitionTerm("at", "hour"),
    )
    assert partition_terms(None) == ()
    assert str(PartitionTerm("id", "bucket[16]")) == "bucket(16, id)"


@pytest.mark.parametrize("text", ["week(at)", "bucket(id)", "day(3, at)", "bucket(0, id)", "day("])
def test_other_transforms_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="not a partition field"):
        partition_terms(text)


def test_a_table_that_is_partitioned_in_another_way_is_refused() -> None:
    stored = (PartitionTerm("at", "day"),)
    require_same_partitioning("db.t", stored, ())
    require_same_partitioning("db.t", stored, partition_terms("day(AT)"))
    with pytest.raises(UserError, match=r"partitioned by day\(at\), but .* is hour\(at\)"):
        require_same_partitioning("db.t", stored, partition_terms("hour(at)"))


@pytest.mark.parametrize(
    ("location", "url", "path"),
    [
        ("file:/a/b", "file:///", "a/b"),
        ("file:///a/b", "file:///", "a/b"),
        ("/a/b", "file:///", "a/b"),
        ("s3a://bucket/a/b", "s3://bucket", "a/b"),
        ("gs://bucket/a", "gs://bucket", "a"),
    ],
)
def test_locations_of_other_writers_are_understood(location: str, url: str, path: str) -> None:
    assert split_location(location) == (url, path)


def test_vended_credentials_replace_our_own_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ours")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "ours")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "ours")
    vended = {"s3.access-key-id": "theirs", "s3.secret-access-key": "theirs"}
    options = dict(vended_access("s3://bucket", vended).options)
    assert options["AWS_ACCESS_KEY_ID"] == options["AWS_SECRET_ACCESS_KEY"] == "theirs"
    assert "AWS_SESSION_TOKEN" not in options
    assert dict(vended_access("s3://bucket", {}).options)["AWS_SESSION_TOKEN"] == "ours"
