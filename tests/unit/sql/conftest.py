"""Connectors for tests, so that the planner is tested without any real one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import pytest
from pydantic import SecretStr

from resurgence.errors import SqlError
from resurgence.graph.connector_spec import ConnectorSpec, FormatSpec, Guarantee, Role, RoleSpec
from resurgence.graph.model import Graph
from resurgence.graph.table_options import TableOptions, option
from resurgence.graph.values import Column
from resurgence.sql import compile_pipeline
from resurgence.udf import FunctionKind

JSON = FormatSpec("json")
DEBEZIUM_JSON = FormatSpec("debezium_json", is_changelog=True, uses_keys=True)
PARQUET = FormatSpec("parquet")


class PathOptions(TableOptions):
    path: str = option()


class RecordOptions(PathOptions):
    bad_data: Literal["fail", "drop"] | None = option(default=None)


class GeneratorOptions(TableOptions):
    interval: str = option(default="1s")
    some_key: str | None = option(default=None, name="some.key")


class ServerOptions(TableOptions):
    url: str = option()
    password: SecretStr | None = option(default=None)


CONNECTORS = {
    spec.name: spec
    for spec in (
        ConnectorSpec(
            "single_file",
            {
                Role.SOURCE: RoleSpec(
                    Role.SOURCE,
                    RecordOptions,
                    (JSON, DEBEZIUM_JSON),
                    metadata={"path": "STRING", "line": "BIGINT"},
                ),
                Role.SINK: RoleSpec(
                    Role.SINK, PathOptions, (JSON, DEBEZIUM_JSON), guarantee=Guarantee.EXACTLY_ONCE
                ),
            },
        ),
        ConnectorSpec(
            "impulse",
            {
                Role.SOURCE: RoleSpec(
                    Role.SOURCE,
                    GeneratorOptions,
                    fixed_columns=(
                        Column(name="counter", type="BIGINT"),
                        Column(name="timestamp", type="TIMESTAMP"),
                        Column(name="subtask", type="BIGINT"),
                        Column(name="subtask_index", type="BIGINT"),
                    ),
                    event_time="timestamp",
                    needs_columns=False,
                )
            },
        ),
        ConnectorSpec(
            "filesystem",
            {
                Role.SINK: RoleSpec(Role.SINK, PathOptions, (PARQUET, JSON)),
                Role.LOOKUP: RoleSpec(Role.LOOKUP, PathOptions, (PARQUET,)),
            },
        ),
        ConnectorSpec(
            "postgres",
            {Role.LOOKUP: RoleSpec(Role.LOOKUP, ServerOptions)},
        ),
        ConnectorSpec(
            "stdout",
            {Role.SINK: RoleSpec(Role.SINK, formats=(JSON, DEBEZIUM_JSON), needs_columns=False)},
        ),
        ConnectorSpec("blackhole", {Role.SINK: RoleSpec(Role.SINK, needs_columns=False)}),
    )
}

RIDES = """CREATE TABLE rides (
  at TIMESTAMP NOT NULL, driver BIGINT, kind TEXT, place TEXT, tags ARRAY<TEXT>,
  car STRUCT<plate: TEXT, seats: INT>,
  WATERMARK FOR at AS at - INTERVAL '30 seconds'
) WITH (connector = 'single_file', path = 'rides.json', format = 'json', type = 'source');
CREATE TABLE plain (a INT, b TEXT) WITH (connector = 'single_file', path = 'plain.json', type = 'source');
CREATE TABLE out (x INT, y TEXT) WITH (connector = 'filesystem', path = 'out', type = 'sink');
CREATE TABLE anything WITH (connector = 'blackhole');
"""
"""What most queries in these tests begin with; it ends with a line break."""

Text = Callable[[str], Graph]
Compile = Callable[..., Graph]
Refusal = Callable[..., SqlError]


@pytest.fixture
def compiled_text() -> Text:
    """Compiles a whole text, without the common declarations."""
    return lambda text: compile_pipeline(text, CONNECTORS)


@pytest.fixture
def compiled() -> Compile:
    """Compiles a query after the common declarations."""

    def run(query: str, functions: Mapping[str, FunctionKind] | None = None) -> Graph:
        return compile_pipeline(RIDES + query, CONNECTORS, functions or {})

    return run


@pytest.fixture
def refusal() -> Refusal:
    """The error that a query after the common declarations gives; its lines are counted from the
    query.
    """

    def run(query: str, functions: Mapping[str, FunctionKind] | None = None) -> SqlError:
        with pytest.raises(SqlError) as caught:
            compile_pipeline(RIDES + query, CONNECTORS, functions or {})
        caught.value.line -= RIDES.count("\n")
        return caught.value

    return run
