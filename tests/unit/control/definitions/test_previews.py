"""The pipeline that a preview computes."""

from __future__ import annotations

import pytest

from resurgence.connectors.registry import CONNECTORS
from resurgence.control.definitions.previews import preview_text
from resurgence.errors import SqlError, UserError
from resurgence.sql import compile_pipeline

SQL = """
SET on_error = 'dead_letter';
CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '10');
CREATE TABLE even (n BIGINT);
INSERT INTO even SELECT counter FROM ticks WHERE counter % 2 = 0;
CREATE VIEW few AS SELECT n FROM even WHERE n < 10;
CREATE TABLE out (n BIGINT) WITH (connector = 'filesystem', path = 'out', format = 'json', type = 'sink');
INSERT INTO out SELECT n FROM few;
"""


def test_a_preview_has_the_declarations_and_the_last_query_and_no_sink() -> None:
    text = preview_text(SQL)
    assert "INSERT INTO out" not in text
    graph = compile_pipeline(text, CONNECTORS)
    assert [each.connector for each in graph.sinks()] == ["stdout"]


def test_a_preview_can_have_a_query_of_its_own() -> None:
    text = preview_text(SQL, "SELECT counter FROM ticks;")
    assert text.endswith("\nSELECT counter FROM ticks;\n")
    compile_pipeline(text, CONNECTORS)


def test_a_text_without_a_query_or_with_an_error_has_no_preview() -> None:
    with pytest.raises(UserError, match="no query"):
        preview_text("CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '10');")
    with pytest.raises(SqlError):
        preview_text("SELECT (")
