"""What an edit of a pipeline keeps, drops and rebuilds; loss is refused unless accepted."""

from __future__ import annotations

import pytest

from resurgence.connectors.registry import CONNECTORS
from resurgence.errors import IncompatibleState
from resurgence.graph.model import Graph
from resurgence.graph.specs.sink import SinkSpec
from resurgence.graph.specs.source import SourceSpec
from resurgence.ids import Epoch, Generation, JobIdentity, OperatorId
from resurgence.sql import compile_pipeline
from resurgence.state.inspection.edits import Fate, OperatorFate, fate_table, fates, require_kept
from resurgence.state.records import (
    InputRange,
    OperatorCheckpointMetadata,
    StateFile,
    TableCheckpoint,
    TableKind,
)

SOURCE = "CREATE TABLE ticks WITH (connector = 'impulse', message_count = '10');"
OTHER_SOURCE = "CREATE TABLE other WITH (connector = 'impulse', message_count = '10');"
SINK = "CREATE TABLE out WITH (connector = 'filesystem', path = 'out', format = 'json');"
SECOND_SINK = (
    "CREATE TABLE second WITH (connector = 'filesystem', path = 'second', format = 'json');"
)
VIEW = "CREATE VIEW even AS SELECT counter FROM ticks WHERE counter % 2 = 0;"
WINDOW = (
    "SELECT tumble(INTERVAL '1 minute') AS w, counter % 3 AS k, count(*) AS n FROM ticks"
    " GROUP BY w, k"
)
WIDER = WINDOW.replace("1 minute", "2 minutes")
BASE = f"{SOURCE}{SINK}INSERT INTO out {WINDOW};"


def compiled(text: str) -> Graph:
    return compile_pipeline(text, CONNECTORS)


def stored(graph: Graph, *, rows: int = 5) -> dict[OperatorId, OperatorCheckpointMetadata]:
    """What a checkpoint of a pipeline holds."""
    found = {}
    for operator in graph.durable():
        kind = operator.kind
        file = StateFile(
            path="f",
            subtask=0,
            epoch=Epoch(3),
            rows=rows,
            bytes=9,
            key_groups=1,
            time_start=0,
            time_end=0,
            digest="",
        )
        tables = {
            "source": {"offsets": TableCheckpoint(kind=TableKind.GLOBAL, values={"counter": 4})},
            "window_aggregate": {
                "partials": TableCheckpoint(
                    kind=TableKind.TIME, schema_text="columns", files=(file,) if rows else ()
                )
            },
            "sink": {
                "staged": TableCheckpoint(
                    kind=TableKind.GLOBAL, values={"rows": 1, "files": [{"path": "x"}]}
                )
            },
        }[kind]
        found[operator.id] = OperatorCheckpointMetadata(
            job=JobIdentity("a1"),
            operator=operator.id,
            epoch=Epoch(3),
            generation=Generation(1),
            parallelism=2,
            tables=tables,
            input=InputRange(start={}, end={}, rows=4) if kind == "source" else None,
            place=operator.place if isinstance(operator, SourceSpec | SinkSpec) else None,
        )
    return found


def judged(
    new: str, old: str = BASE, *, parallelism: int = 2, rows: int = 5, commit_pending: bool = False
) -> dict[str, OperatorFate]:
    """The fates after an edit, by kind and table of the operator."""
    found = fates(
        compiled(new), stored(compiled(old), rows=rows), parallelism, commit_pending=commit_pending
    )
    return {each.operator: each for each in found}


def outcome(found: dict[str, OperatorFate]) -> set[tuple[str, Fate, bool]]:
    return {(name.split("-")[0], each.fate, each.loses) for name, each in found.items()}


ALL_KEPT = {("source", Fate.KEEP, False), ("window", Fate.KEEP, False), ("sink", Fate.KEEP, False)}


@pytest.mark.parametrize(
    "edited",
    [
        BASE,
        f"{SOURCE}{VIEW}{SINK}INSERT INTO out {WINDOW};",
        f"{SOURCE}{SINK}INSERT INTO out SELECT w, n FROM ({WINDOW}) WHERE n > 1;",
        BASE.replace("message_count = '10'", "message_count = '99'"),
        BASE.replace(
            "CREATE TABLE ticks WITH",
            "CREATE TABLE ticks (counter BIGINT, timestamp TIMESTAMP) WITH",
        ),
    ],
    ids=["same", "a view more", "a filter and fewer columns downstream", "an option", "columns"],
)
def test_operators_that_an_edit_does_not_touch_are_kept(edited: str) -> None:
    found = judged(edited)
    assert outcome(found) == ALL_KEPT
    require_kept(found.values(), Epoch(3), accept_loss=False)


def test_an_added_sink_starts_and_everything_else_is_kept() -> None:
    found = judged(f"{BASE}{SECOND_SINK}INSERT INTO second {WINDOW};")
    assert outcome(found) == ALL_KEPT | {("sink", Fate.REBUILD, False)}
    assert found["sink-second"].reason.startswith("new")


def test_an_added_source_and_window_start_and_everything_else_is_kept() -> None:
    more = WINDOW.replace("ticks", "other")
    found = judged(f"{BASE}{OTHER_SOURCE}{SECOND_SINK}INSERT INTO second {more};")
    begun = {(kind, Fate.REBUILD, False) for kind in ("source", "window", "sink")}
    assert outcome(found) == ALL_KEPT | begun


def test_an_edited_window_would_lose_its_rows() -> None:
    found = judged(BASE.replace(WINDOW, WIDER))
    assert ("window", Fate.DROP, True) in outcome(found)
    assert ("window", Fate.REBUILD, False) in outcome(found)
    with pytest.raises(IncompatibleState) as raised:
        require_kept(found.values(), Epoch(3), accept_loss=False)
    assert fate_table(found.values()) in raised.value.message
    assert "5 rows of state in 1 files would be lost (LOST)" in raised.value.message
    assert "--accept-state-loss" in raised.value.hint
    require_kept(found.values(), Epoch(3), accept_loss=True)


def test_an_edited_window_without_rows_loses_nothing() -> None:
    found = judged(BASE.replace(WINDOW, WIDER), rows=0)
    require_kept(found.values(), Epoch(3), accept_loss=False)


def test_a_removed_source_would_lose_its_offset() -> None:
    old = f"{BASE}{OTHER_SOURCE}{SECOND_SINK}INSERT INTO second SELECT counter FROM other;"
    found = judged(BASE, old)
    assert found["source-other"].loses
    assert not found["sink-second"].loses


def test_a_removed_sink_loses_only_uncommitted_output() -> None:
    old = f"{BASE}{SECOND_SINK}INSERT INTO second SELECT counter FROM ticks;"
    assert not judged(BASE, old)["sink-second"].loses
    assert judged(BASE, old, commit_pending=True)["sink-second"].loses


LINES = (
    "CREATE TABLE lines (at TIMESTAMP, WATERMARK FOR at)"
    " WITH (connector = 'single_file', path = 'a.json', type = 'source');"
)


def test_a_source_of_another_connector_would_lose_its_offset() -> None:
    found = judged(
        BASE, f"{LINES}{SINK}INSERT INTO out SELECT at FROM lines;".replace("lines", "ticks")
    )
    assert found["source-ticks"].loses
    assert found["source-ticks"].reason == (
        "reads impulse, but its offset is in single_file a.json"
    )


def test_a_source_may_have_been_moved() -> None:
    text = f"{LINES}{SINK}INSERT INTO out SELECT at FROM lines;"
    found = judged(text.replace("a.json", "b.json"), text)["source-lines"]
    assert (found.fate, found.loses) == (Fate.KEEP, False)
    assert "must have the content of single_file a.json" in found.reason


def test_a_sink_may_have_been_moved_with_its_staged_output() -> None:
    moved = BASE.replace("path = 'out'", "path = 'elsewhere'")
    for commit_pending in (False, True):
        found = judged(moved, commit_pending=commit_pending)["sink-out"]
        assert (found.fate, found.loses) == (Fate.KEEP, False)


def test_a_sink_of_another_connector_loses_only_uncommitted_output() -> None:
    other = BASE.replace("'filesystem', path = 'out', format = 'json'", "'blackhole'")
    assert not judged(other)["sink-out"].loses
    waiting = judged(other, commit_pending=True)["sink-out"]
    assert (waiting.fate, waiting.loses) == (Fate.REBUILD, True)


def test_another_parallelism_migrates_windows() -> None:
    found = judged(BASE, parallelism=3)
    (window,) = [each for name, each in found.items() if name.startswith("window")]
    assert window.fate is Fate.MIGRATE
    assert "3 subtasks instead of 2" in window.reason


def test_state_of_other_columns_is_rebuilt_and_lost() -> None:
    graph = compiled(BASE)
    (window,) = graph.window_aggregates()
    found = fates(
        graph, stored(graph), 2, commit_pending=False, schemas={window.id: "other columns"}
    )
    assert [(each.fate, each.loses) for each in found if each.operator == window.id] == [
        (Fate.REBUILD, True)
    ]
