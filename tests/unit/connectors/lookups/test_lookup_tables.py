"""Lookup tables: errors that are detected before Spark starts."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from resurgence.connectors.checks import check_connectors
from resurgence.connectors.registry import CONNECTORS, make_lookup
from resurgence.errors import ConfigError, ResurgenceError, UserError
from resurgence.graph.model import Graph
from resurgence.graph.specs.lookup_join import LookupSpec
from resurgence.graph.values import Column
from resurgence.ids import JobName
from resurgence.sql import compile_pipeline

URL = "postgresql://me@host/db"


def spec(connector: str, kind: str = "BIGINT", **options: str) -> LookupSpec:
    return LookupSpec(
        name="people",
        connector=connector,
        options=options,
        columns=(Column(name="id", type=kind),),
        ttl_micros=0,
    )


def graph(folder: Path, options: str) -> Graph:
    (folder / "in.json").write_text('{"a": 1}\n')
    return compile_pipeline(
        f"CREATE TABLE t (a BIGINT) WITH (connector = 'single_file', path = '{folder}/in.json',"
        " type = 'source');"
        f"CREATE TEMPORARY TABLE people (id BIGINT, name TEXT) WITH ({options});"
        "SELECT name FROM t JOIN people ON a = id",
        CONNECTORS,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "connector = 'filesystem', path = '/no/such/place'",
            "folder /no/such/place does not exist",
        ),
        ("connector = 'delta', path = '/no/such/place'", "folder /no/such/place does not exist"),
        (
            "connector = 'postgres', table = 'p', url = 'host=db password=x'",
            "is not the URL of a Postgres",
        ),
        (
            "connector = 'postgres', table = 'p', url = 'postgresql://u:${env:NOT_SET}@h/db'",
            "environment variable 'NOT_SET' is not set",
        ),
    ],
)
def test_unreadable_lookup_tables_are_refused_before_spark_starts(
    tmp_path: Path, options: str, message: str
) -> None:
    with pytest.raises(UserError) as caught:
        check_connectors(graph(tmp_path, options), f"file://{tmp_path}", JobName("job"))
    assert message in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("kind", ["MAP<STRING, INT>", "ARRAY<DECIMAL(4,2)>", "VARIANT"])
def test_types_that_postgres_lacks_are_refused(kind: str) -> None:
    with pytest.raises(UserError, match=r"column 'id': no Postgres type can be read") as caught:
        make_lookup(spec("postgres", kind, url=URL, table="p")).check()
    assert "TEXT" in caught.value.hint


@pytest.mark.parametrize(
    ("connector", "package", "extra"),
    [
        ("postgres", "adbc_driver_postgresql", "resurgence[postgres]"),
        ("delta", "deltalake", "resurgence[delta]"),
    ],
)
def test_a_package_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, connector: str, package: str, extra: str
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else found(name)
    )
    options = {"postgres": {"url": URL, "table": "p"}, "delta": {"path": "p"}}[connector]
    with pytest.raises(ConfigError) as caught:
        make_lookup(spec(connector, **options)).check()
    assert extra in caught.value.hint


def test_a_secret_of_a_lookup_table_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_PLACE", "/hunter2")
    table = spec("filesystem", path="${env:SECRET_PLACE}")
    graph = Graph(operators=())
    monkeypatch.setattr(Graph, "lookup_tables", lambda _graph: (table,))
    with pytest.raises(ResurgenceError) as caught:
        check_connectors(graph, "file:///tmp", JobName("job"))
    assert "${env:SECRET_PLACE}" in caught.value.message
    assert "hunter2" not in caught.value.message
