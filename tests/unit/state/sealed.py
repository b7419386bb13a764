"""Checkpoints of a compiled pipeline, as an engine would have sealed them; state files are not read."""

from __future__ import annotations

from datetime import UTC, datetime

from resurgence.graph.model import Graph
from resurgence.graph.specs.sink import SinkSpec
from resurgence.graph.specs.source import SourceSpec
from resurgence.ids import Epoch, OperatorId
from resurgence.state.backend import StateBackend
from resurgence.state.records import (
    OFFSETS,
    STAGED,
    CommittedRecord,
    EpochCounts,
    GenerationRecord,
    InputRange,
    Manifest,
    OperatorCheckpointMetadata,
    StateFile,
    TableCheckpoint,
    TableKind,
    Totals,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
_DATA = b"rows"


def input_of(epoch: int) -> InputRange:
    """Ten rows per epoch."""
    return InputRange(
        start={"counter": (epoch - 1) * 10}, end={"counter": epoch * 10}, rows=10, planned_at=NOW
    )


def seal(
    backend: StateBackend,
    graph: Graph,
    epoch: int,
    *,
    rows: int = 5,
    is_committed: bool = True,
    sealed_at: datetime = NOW,
    claim: GenerationRecord | None = None,
) -> None:
    """Seal an epoch of a generation, by default the newest. Each stateful operator holds so many
    rows.
    """
    claim = claim or backend.newest_claim()
    assert claim is not None
    read = input_of(epoch)
    inputs = {each.id: read for each in graph.sources()}
    found: list[OperatorCheckpointMetadata] = []
    for operator in graph.durable():
        path = (
            f"{backend.paths.table(operator.id, 'partials')}/{epoch}-{claim.generation}-0-0.parquet"
        )
        has_files = bool(rows) and not isinstance(operator, SourceSpec | SinkSpec)
        if has_files:
            backend.store.create(path, _DATA)
        file = StateFile(
            path=path,
            subtask=0,
            epoch=Epoch(epoch),
            rows=rows,
            bytes=len(_DATA),
            key_groups=1,
            time_start=0,
            time_end=0,
            digest="",
        )
        match operator:
            case SourceSpec():
                name, table = OFFSETS, TableCheckpoint(kind=TableKind.GLOBAL, values=read.end)
            case SinkSpec():
                name, table = STAGED, TableCheckpoint(kind=TableKind.GLOBAL, values={"rows": 1})
            case _:
                files = (file,) if has_files else ()
                name, table = "partials", TableCheckpoint(kind=TableKind.TIME, files=files)
        found.append(
            OperatorCheckpointMetadata(
                job=claim.job,
                operator=operator.id,
                epoch=Epoch(epoch),
                generation=claim.generation,
                parallelism=2,
                tables={name: table},
                input=inputs.get(operator.id),
                place=operator.place if isinstance(operator, SourceSpec | SinkSpec) else None,
            )
        )
    rows_out: dict[OperatorId, int] = {each.id: 3 for each in graph.sinks()}
    counts = EpochCounts(rows_in=dict.fromkeys(inputs, 10), rows_out=rows_out)
    total = EpochCounts()
    for _ in range(epoch):
        total = total.plus(counts)
    backend.publish(
        Manifest(
            job=claim.job,
            epoch=Epoch(epoch),
            attempt=0,
            generation=claim.generation,
            parent=Epoch(epoch - 1),
            operators=backend.write_metadata(found),
            inputs=inputs,
            counts=counts,
            totals=Totals(since=Epoch(1), counts=total),
            began_at=sealed_at,
            sealed_at=sealed_at,
        )
    )
    if is_committed:
        backend.record_committed(
            CommittedRecord(
                job=claim.job,
                epoch=Epoch(epoch),
                generation=claim.generation,
                inputs=inputs,
                counts=counts,
                committed_at=sealed_at,
            )
        )
