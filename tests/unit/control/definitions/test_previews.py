"""Previews: the pipeline that is run, and the rows that it prints. A script takes its place."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import pytest

from resurgence.connectors.registry import CONNECTORS
from resurgence.control.definitions import previews
from resurgence.control.definitions.previews import PreviewFailed, preview_text, previewed_rows
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
    assert "SELECT * FROM (\nSELECT counter FROM ticks\n) LIMIT" in text
    compile_pipeline(text, CONNECTORS)


def test_a_text_without_a_query_or_with_an_error_has_no_preview() -> None:
    with pytest.raises(UserError, match="no query"):
        preview_text("CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '10');")
    with pytest.raises(SqlError):
        preview_text("SELECT (")


def printing(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Run a script instead of Python."""
    script = folder / "run"
    script.write_text("\n".join(["#!/bin/sh", *lines]))
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


def test_a_preview_ends_with_its_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = '{"n": 1}'
    printing(tmp_path, monkeypatch, f"echo '{row}'")
    found = previewed_rows("SELECT 1", None, {"pipeline.x": "1"}, tmp_path)
    assert found.rows == ({"n": 1},)
    assert found.is_complete


def test_a_preview_ends_when_no_more_rows_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(previews, "_QUIET", 0.5)
    row = '{"n": 1}'
    printing(tmp_path, monkeypatch, f"echo '{row}'", "printf '{\"n\":'", "exec sleep 1000")
    found = previewed_rows("SELECT 1", None, {}, tmp_path)
    assert found.rows == ({"n": 1},)
    assert not found.is_complete


def test_a_preview_without_rows_ends_after_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printing(tmp_path, monkeypatch, "exec sleep 1000")
    found = previewed_rows("SELECT 1", None, {}, tmp_path, timedelta(seconds=0.5))
    assert found.rows == ()


def test_the_error_of_a_preview_is_that_of_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = '{"event": "failure", "error": "boom", "hint": "Fix it."}'
    where = 'while [ "$1" != --events ]; do shift; done'
    printing(tmp_path, monkeypatch, where, f"echo '{failure}' > \"$2\"", "exit 1")
    with pytest.raises(PreviewFailed, match="boom") as raised:
        previewed_rows("SELECT 1", None, {}, tmp_path)
    assert raised.value.hint == "Fix it."
