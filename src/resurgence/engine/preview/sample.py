"""Computes a preview: one epoch over a sample of the real input, which is taken for all of it.

So every window closes, and the rows are those of Spark's batch answer over the sample. The operators
are those of a job. State and output are written to a temporary folder; nothing is committed, and no
sink of the pipeline is opened.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from resurgence.clock import Clock, SystemClock
from resurgence.connectors.contract import Source, StagedOutput
from resurgence.connectors.registry import make_sink
from resurgence.engine.epochs.execution import Execution
from resurgence.engine.epochs.pipeline import Pipeline
from resurgence.engine.epochs.timeline import Timeline
from resurgence.engine.functions.planning_time import micros
from resurgence.engine.operators.sink import SinkOperator
from resurgence.engine.preview.request import Preview, PreviewedTable, PreviewRequest
from resurgence.engine.preview.selection import TERMINAL_CONNECTOR
from resurgence.faults import FaultInjector
from resurgence.graph.model import Graph
from resurgence.graph.specs.sink import SinkSpec
from resurgence.graph.values import CHANGE
from resurgence.ids import Epoch, JobName, OperatorId
from resurgence.state.backend import StateBackend
from resurgence.state.records import InputRange, Offset
from resurgence.storage.object_store import ObjectStore

_JOB = JobName("preview")
_PARALLELISM = 2
_POLL_SECONDS = 0.1
_MAX_DEAD_LETTERS = 1_000_000
"""A sample may consist of bad records; none of them is an error here if the table keeps them."""
_CHANGELOG = {"format": "debezium_json"}


def preview_sample(
    spark: SparkSession, request: PreviewRequest, clock: Clock | None = None
) -> Preview:
    """Compute a preview in a session. The functions of the request must be registered."""
    clock = clock or SystemClock()
    with tempfile.TemporaryDirectory(prefix="resurgence-preview-") as folder:
        store = ObjectStore(str(Path(folder)))
        backend = StateBackend(store, _JOB)
        claim = backend.claim_generation(clock.now())
        plan = backend.prepare_checkpoint_load(claim, _PARALLELISM)
        graph = _with_own_sinks(request.graph)
        pipeline = Pipeline(spark, graph, store.url, backend.paths, _PARALLELISM)
        _write_changelogs(pipeline, store.url)
        execution = Execution(
            pipeline, plan, FaultInjector((), store, _JOB), lambda _epoch, _operator: None
        )
        now = clock.now()
        inputs = _sampled(pipeline.sources, request, clock)
        inputs = {
            name: each.model_copy(update={"planned_at": now}) for name, each in inputs.items()
        }
        run = execution.begin(
            Epoch(1), now, micros(now), inputs, Timeline(), {}, _MAX_DEAD_LETTERS, {}
        )
        try:
            execution.run(run)
            tables: dict[str, PreviewedTable] = {}
            for spec in request.graph.sinks():
                operator = pipeline.operators[spec.id]
                names = [each for each in operator.shape.columns if not each.startswith("__")]
                staged = run.effects.staged[spec.id]
                rows = min(request.rows, spec.limit or request.rows)
                found = _table(spec, names, staged, store, rows, CHANGE in operator.shape.columns)
                before = tables.get(spec.table)
                tables[spec.table] = found if before is None else _both(before, found, rows)
        finally:
            for source in pipeline.sources.values():
                source.close()
        named = {each.id: each.table for each in graph.sources()}
        return Preview(
            tables=list(tables.values()),
            rows_read={named[each]: count for each, count in run.effects.rows_in.items()},
            rows_bad={
                named[each]: count
                for found_bad in (run.effects.bad_rows, run.effects.dead_rows)
                for each, count in found_bad.items()
                if count
            },
        )


def _with_own_sinks(graph: Graph) -> Graph:
    """Return a graph that writes where this module can read it, and nowhere else."""
    own: dict[str, object] = {"connector": TERMINAL_CONNECTOR, "options": {}, "limit": None}
    operators = tuple(
        each.model_copy(update=own) if isinstance(each, SinkSpec) else each
        for each in graph.operators
    )
    return graph.model_copy(update={"operators": operators})


def _write_changelogs(pipeline: Pipeline, url: str) -> None:
    """Let the sinks of changelogs write one."""
    for operator in pipeline.operators.values():
        if isinstance(operator, SinkOperator) and CHANGE in operator.shape.columns:
            spec = operator.spec.model_copy(update={"options": _CHANGELOG})
            operator.sink = make_sink(spec, url, _JOB)


# ---------------------------------------------------------------- input


@dataclass(frozen=True)
class _Start:
    """Where a source begins."""

    source: Source
    offset: Offset

    def next(self, rows: int, now: datetime) -> InputRange | None:
        return self.source.plan(self.offset, rows, now)


def _sampled(
    sources: Mapping[OperatorId, Source], request: PreviewRequest, clock: Clock
) -> dict[OperatorId, InputRange]:
    """Return the first rows of each source as a range that ends its input. A source that has too
    few is waited for, up to the patience of the request.
    """
    now = clock.now()
    starts: dict[OperatorId, _Start] = {}
    for operator_id, source in sources.items():
        source.check()
        starts[operator_id] = _Start(source, source.first_offset(now, _PARALLELISM))
    found: dict[OperatorId, InputRange | None] = dict.fromkeys(starts)
    ends = time.monotonic() + request.patience
    while True:
        for operator_id, start in starts.items():
            if not _is_enough(found[operator_id], request.sample):
                found[operator_id] = start.next(request.sample, clock.now()) or found[operator_id]
        if time.monotonic() >= ends or all(
            _is_enough(each, request.sample) for each in found.values()
        ):
            break
        time.sleep(_POLL_SECONDS)
    return {
        operator_id: (
            planned or InputRange(start=start.offset, end=start.offset, rows=0)
        ).model_copy(update={"final": True})
        for (operator_id, start), planned in zip(starts.items(), found.values(), strict=True)
    }


def _is_enough(planned: InputRange | None, rows: int) -> bool:
    return planned is not None and (planned.final or planned.rows >= rows)


# ---------------------------------------------------------------- output


def _table(
    spec: SinkSpec,
    columns: list[str],
    staged: StagedOutput,
    store: ObjectStore,
    rows: int,
    is_changelog: bool,
) -> PreviewedTable:
    """Return the first rows that were staged; of a changelog, those that it inserts."""
    shown: list[list[Any]] = []
    is_complete = True
    for file in staged.files:
        for line in store.read(file.path).splitlines():
            record = json.loads(line)
            row = record.get("after") if is_changelog else record
            if row is None:
                continue
            if len(shown) == rows:
                is_complete = False
                break
            shown.append([row.get(each) for each in columns])
    return PreviewedTable(table=spec.table, columns=columns, rows=shown, is_complete=is_complete)


def _both(first: PreviewedTable, second: PreviewedTable, rows: int) -> PreviewedTable:
    """Return the rows of two INSERTs into one table."""
    found = [*first.rows, *second.rows]
    return first.model_copy(
        update={
            "rows": found[:rows],
            "is_complete": first.is_complete and second.is_complete and len(found) <= rows,
        }
    )
