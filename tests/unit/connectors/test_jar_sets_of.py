"""Which jars a pipeline needs, by its connectors and formats."""

from __future__ import annotations

from dataclasses import replace

import pytest

from resurgence.connectors import registry
from resurgence.connectors.formats import registry as formats
from resurgence.connectors.impulse import IMPULSE
from resurgence.connectors.registry import CONNECTORS, INSTALLED, jar_sets_of
from resurgence.graph.model import Graph
from resurgence.sql import compile_pipeline


def graph_of(source: str, sink: str) -> Graph:
    return compile_pipeline(
        f"CREATE TABLE s (counter BIGINT) WITH ({source}, type = 'source');"
        f"CREATE TABLE t WITH ({sink}, type = 'sink'); INSERT INTO t SELECT counter FROM s",
        CONNECTORS,
    )


FILES = "connector = 'single_file', path = '/in', format = 'json'"
CHANGES = "connector = 'single_file', path = '/out', format = 'debezium_json'"


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert IMPULSE.source is not None
    impulse = replace(IMPULSE, source=replace(IMPULSE.source, jars=("kafka",)))
    monkeypatch.setattr(registry, "INSTALLED", {**INSTALLED, "impulse": impulse})
    json = replace(formats.FORMATS["debezium_json"], jars=("avro",))
    monkeypatch.setattr(registry, "FORMATS", {**formats.FORMATS, "debezium_json": json})


def test_a_pipeline_needs_the_jars_of_its_roles_and_formats() -> None:
    graph = graph_of("connector = 'impulse', event_rate = '1'", CHANGES)
    assert jar_sets_of(graph) == ("kafka", "avro")


def test_a_pipeline_of_other_connectors_and_formats_needs_none() -> None:
    assert jar_sets_of(graph_of(FILES, "connector = 'blackhole'")) == ()
