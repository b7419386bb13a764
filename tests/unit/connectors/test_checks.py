from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from resurgence.connectors.checks import require_no_more_input
from resurgence.connectors.registry import CONNECTORS, make_source
from resurgence.errors import SourceRangeGone, UserError
from resurgence.graph.model import Graph
from resurgence.ids import OperatorId
from resurgence.sql import compile_pipeline
from resurgence.state.records import Offset

NOW = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.json"
    path.write_text('{"k": 1}\n{"k": 2}\n')
    return path


def read_to_the_end(path: Path) -> tuple[Graph, dict[OperatorId, Offset]]:
    graph = compile_pipeline(
        f"CREATE TABLE t (k BIGINT) WITH (connector = 'single_file', path = '{path}', "
        "format = 'json', type = 'source'); SELECT k FROM t",
        CONNECTORS,
    )
    (spec,) = graph.sources()
    source = make_source(spec)
    planned = source.plan(source.first_offset(NOW, 1), 10, NOW)
    assert planned is not None
    assert planned.final
    return graph, {spec.id: planned.end}


def test_a_finished_job_whose_input_is_unchanged_has_no_more_input(lines: Path) -> None:
    require_no_more_input(*read_to_the_end(lines), NOW)


def test_a_finished_job_whose_input_has_grown_is_refused(lines: Path) -> None:
    graph, ends = read_to_the_end(lines)
    with lines.open("a") as file:
        file.write('{"k": 3}\n')
    with pytest.raises(UserError, match="table 't' has new input") as caught:
        require_no_more_input(graph, ends, NOW)
    assert "another --name" in (caught.value.hint or "")


def test_a_finished_job_whose_input_was_replaced_is_refused(lines: Path) -> None:
    graph, ends = read_to_the_end(lines)
    lines.write_text('{"k": 7}\n{"k": 8}\n{"k": 9}\n')
    with pytest.raises(SourceRangeGone):
        require_no_more_input(graph, ends, NOW)


def test_a_source_that_a_limit_ended_early_may_have_more_input(lines: Path) -> None:
    graph, _ = read_to_the_end(lines)
    require_no_more_input(graph, {}, NOW)
