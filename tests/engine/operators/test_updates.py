"""Updating queries in the engine: split into epochs, crashed and rescaled, their changelogs add up
to the batch answer.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.clock import Clock
from resurgence.config import settings_from
from resurgence.engine.epochs.engine import Engine
from resurgence.engine.epochs.in_process import open_engine
from resurgence.errors import BadRecord
from resurgence.graph.aggregate_call import AggregateCall
from resurgence.graph.model import Graph
from resurgence.graph.specs.sink import SinkSpec
from resurgence.graph.specs.source import SourceSpec
from resurgence.graph.specs.updating_query import UpdatingQuerySpec
from resurgence.graph.values import Column
from resurgence.ids import JobName, OperatorId
from resurgence.storage.object_store import ObjectStore
from tests.engine.harness import SetClock, read_lines, write_lines
from tests.engine.updating import kept, query

SOURCE, QUERY, SINK = OperatorId("source"), OperatorId("updating-1"), OperatorId("sink")
COUNTS = query(
    "SELECT user, count(*) AS n, sum(price) AS total FROM {input_0} GROUP BY user",
    kept("user, price", "user"),
)
ACCUMULATED = COUNTS.model_copy(
    update={
        "aggregates": (
            AggregateCall(name="n", function="count"),
            AggregateCall(name="total", function="sum", arguments=("`price`",)),
        )
    }
)
STORED = [pytest.param(COUNTS, id="rows"), pytest.param(ACCUMULATED, id="accumulators")]
DISTINCT = query(
    "SELECT name, count(*) AS n FROM {input_0} GROUP BY name",
    kept("user, name", "name", updating=True),
)


def pipeline(
    folder: Path, file_format: str, columns: dict[str, str], operator: UpdatingQuerySpec
) -> Graph:
    return Graph(
        operators=(
            SourceSpec(
                id=SOURCE,
                table="events",
                connector="single_file",
                options={"path": str(folder / "in.json"), "format": file_format},
                is_changelog=file_format == "debezium_json",
                columns=tuple(Column(name=name, type=kind) for name, kind in columns.items()),
            ),
            operator,
            SinkSpec(
                id=SINK,
                input=QUERY,
                table="results",
                connector="single_file",
                options={"path": str(folder / "out.json"), "format": "debezium_json"},
                keys=(next(iter(columns)),) if file_format == "json" else ("name",),
            ),
        )
    )


def opened(
    spark: SparkSession,
    folder: Path,
    graph: Graph,
    rows: int,
    parallelism: int,
    faults: str = "",
    clock: Clock | None = None,
) -> Engine:
    settings = settings_from(
        {
            "pipeline.parallelism": str(parallelism),
            "pipeline.epoch_rows": str(rows),
            "checkpoint.compact_files": "2",
            "faults": faults,
        }
    )
    store = ObjectStore(f"file://{folder}/state")
    return open_engine(spark, graph, store, JobName("job"), settings, clock=clock)


def merged(path: Path) -> dict[str, str]:
    """A change stream by key, applied strictly."""
    view: dict[str, str] = {}
    for each in read_lines(path):
        before, after = each["before"], each["after"]
        held = before or after
        assert isinstance(held, dict)
        key = json.dumps(held.get("user", held.get("name")))
        assert view.pop(key, None) == (json.dumps(before) if before else None)
        if after:
            view[key] = json.dumps(after)
    return view


@pytest.mark.parametrize("operator", STORED)
@pytest.mark.parametrize(
    "fault",
    [
        "state.partial",
        pytest.param("state.written", marks=pytest.mark.long),
        pytest.param("metadata.written", marks=pytest.mark.long),
        pytest.param("manifest.published", marks=pytest.mark.long),
    ],
)
def test_a_changelog_survives_a_fault_and_rescaling(
    spark: SparkSession, tmp_path: Path, fault: str, operator: UpdatingQuerySpec
) -> None:
    rng = random.Random(fault)
    rows = [
        {"user": rng.choice([None, *"abcd"]), "price": rng.random() * 10 ** rng.randrange(12)}
        for _ in range(60)
    ]
    write_lines(tmp_path / "in.json", rows)
    graph = pipeline(tmp_path, "json", {"user": "STRING", "price": "DOUBLE"}, operator)
    engine = opened(spark, tmp_path, graph, 10, 2, f"{fault}@3=raise")
    with pytest.raises(Exception, match="fault injected"):
        while True:
            engine.run_epoch()
    engine = opened(spark, tmp_path, graph, 10, 3)
    while not engine.finished:
        engine.run_epoch()
    counts = Counter(each["user"] for each in rows)
    found = [json.loads(each) for each in merged(tmp_path / "out.json").values()]
    assert {each["user"]: each["n"] for each in found} == counts
    for each in found:
        prices = [row["price"] for row in rows if row["user"] == each["user"]]
        assert each["total"] == pytest.approx(sum(prices))


def test_a_changelog_is_read_and_written(spark: SparkSession, tmp_path: Path) -> None:
    def row(user: int, name: str) -> dict[str, object]:
        return {"user": user, "name": name}

    lines: list[dict[str, object]] = [
        {"before": None, "after": row(1, "a"), "op": "c"},
        {"before": None, "after": row(2, "a"), "op": "r"},
        {"before": row(1, "a"), "after": row(1, "b"), "op": "u", "ts_ms": 1},
        {"before": row(2, "a"), "after": None, "op": "d"},
        {"before": None, "after": row(3, "b"), "op": "c"},
    ]
    write_lines(tmp_path / "in.json", lines)
    graph = pipeline(tmp_path, "debezium_json", {"user": "INT", "name": "STRING"}, DISTINCT)
    engine = opened(spark, tmp_path, graph, 2, 2)
    while not engine.finished:
        engine.run_epoch()
    assert merged(tmp_path / "out.json") == {'"b"': '{"name": "b", "n": 2}'}
    (tmp_path / "bad").mkdir()
    write_lines(tmp_path / "bad" / "in.json", [*lines, {"after": row(1, "x"), "op": "u"}])
    bad = pipeline(tmp_path / "bad", "debezium_json", {"user": "INT", "name": "STRING"}, DISTINCT)
    with pytest.raises(BadRecord, match="line 6, column 1: 'before' is missing"):
        opened(spark, tmp_path / "bad", bad, 10, 1).run_epoch()


@pytest.mark.parametrize("operator", STORED)
def test_a_replayed_epoch_expires_state_by_its_recorded_planning_time(
    spark: SparkSession, tmp_path: Path, operator: UpdatingQuerySpec
) -> None:
    write_lines(tmp_path / "in.json", [{"user": "a", "price": 1.0}] * 3)
    hour = 3_600_000_000
    operator = operator.model_copy(update={"ttl_micros": hour})
    graph = pipeline(tmp_path, "json", {"user": "STRING", "price": "DOUBLE"}, operator)
    clock = SetClock(datetime(2024, 1, 1, tzinfo=UTC))
    engine = opened(spark, tmp_path, graph, 1, 2, clock=clock)
    engine.run_epoch()
    clock.at += timedelta(minutes=30)
    engine.run_epoch()
    # Its second checkpoint is lost: the second epoch is done again, much later.
    newest = max(state_files(tmp_path), key=lambda each: int(each.name.split("-")[0]))
    newest.unlink()
    clock.at += timedelta(minutes=40)
    engine = opened(spark, tmp_path, graph, 1, 1, clock=clock)
    assert engine.epoch == 1
    while not engine.finished:
        engine.run_epoch()
    assert [each["op"] for each in read_lines(tmp_path / "out.json")] == ["c", "u", "u"]
    assert merged(tmp_path / "out.json") == {'"a"': '{"user": "a", "n": 3, "total": 3.0}'}


def state_files(folder: Path) -> list[Path]:
    return list((folder / "state" / "job" / "tables").rglob("*.parquet"))
