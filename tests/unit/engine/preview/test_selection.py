"""Which part of a pipeline is previewed, and where an error of the query is."""

from __future__ import annotations

import pytest

from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.preview.selection import QueryError, placed, selected_graph
from resurgence.errors import SqlError, UserError
from resurgence.graph.model import Graph
from resurgence.sql import compile_pipeline

RIDES = """
CREATE TABLE rides (at TIMESTAMP, kind TEXT, WATERMARK FOR at)
WITH (connector = 'single_file', path = 'rides.json', type = 'source');
CREATE TABLE zones (name TEXT)
WITH (connector = 'single_file', path = 'zones.json', type = 'source');
CREATE VIEW loud AS SELECT upper(kind) AS kind FROM rides;
"""
OUTPUTS = """
CREATE TABLE "Out" WITH (connector = 'filesystem', path = 'out', type = 'sink');
CREATE TABLE names WITH (connector = 'filesystem', path = 'names', type = 'sink');
INSERT INTO "Out" SELECT kind FROM loud;
INSERT INTO names SELECT name FROM zones;
SELECT name FROM zones
"""


def compiled(sql: str) -> Graph:
    return compile_pipeline(sql, CONNECTORS, {})


def tables(graph: Graph) -> tuple[set[str], set[str]]:
    return {each.table for each in graph.sources()}, {each.connector for each in graph.sinks()}


def test_all_outputs_are_previewed_by_default() -> None:
    sources, sinks = tables(selected_graph(RIDES + OUTPUTS, compiled))
    assert sources == {"rides", "zones"}
    assert sinks == {"filesystem", "stdout"}


def test_a_sink_is_previewed_with_what_feeds_it() -> None:
    graph = selected_graph(RIDES + OUTPUTS, compiled, table="out")
    assert tables(graph) == ({"rides"}, {"filesystem"})


@pytest.mark.parametrize("sql", [RIDES, RIDES + OUTPUTS], ids=["only tables", "with outputs"])
@pytest.mark.parametrize("table", ["rides", "loud"])
def test_a_source_and_a_view_are_previewed_also_without_any_output(sql: str, table: str) -> None:
    assert tables(selected_graph(sql, compiled, table=table)) == ({"rides"}, {"stdout"})


@pytest.mark.parametrize("end", ["", ";", "; -- the end", "\n\n"])
def test_a_select_sees_the_tables_of_the_pipeline_and_replaces_its_outputs(end: str) -> None:
    sql = f"{(RIDES + OUTPUTS).rstrip()}{end}"
    graph = selected_graph(sql, compiled, select="SELECT kind FROM loud LIMIT 3")
    assert tables(graph) == ({"rides"}, {"stdout"})


@pytest.mark.parametrize("end", ["", ";"])
def test_an_error_of_the_select_is_at_its_place_in_the_select(end: str) -> None:
    sql = f"{(RIDES + OUTPUTS).rstrip()}{end}"
    with pytest.raises(QueryError) as raised:
        selected_graph(sql, compiled, select="SELECT\n  knd FROM rides")
    assert (raised.value.line, raised.value.column) == (2, 3)
    assert "kind" in raised.value.hint


def test_an_error_of_the_pipeline_stays_where_it_is() -> None:
    with pytest.raises(SqlError) as raised:
        selected_graph("CREATE TABEL x", compiled, select="SELECT a FROM x")
    assert not isinstance(raised.value, QueryError)
    assert raised.value.line == 1
    late = SqlError("wrong type", line=3, column=2)
    assert placed(late, RIDES) is late


def test_only_a_query_and_a_known_table_can_be_previewed() -> None:
    with pytest.raises(UserError, match="only a SELECT can be previewed"):
        selected_graph(RIDES + OUTPUTS, compiled, select="INSERT INTO names SELECT kind FROM loud")
    with pytest.raises(UserError, match="cannot preview 'ride'") as raised:
        selected_graph(RIDES, compiled, table="ride")
    assert "rides" in raised.value.hint
