"""A job whose checkpoints name real Parquet files, written as the engine writes them, without
Spark.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from resurgence.ids import NO_EPOCH, Epoch, JobIdentity, JobName, OperatorId
from resurgence.state.backend import StateBackend
from resurgence.state.load_plan import LoadPlan
from resurgence.state.records import (
    CommittedRecord,
    EpochCounts,
    GenerationRecord,
    InputRange,
    Manifest,
    Offset,
    OperatorCheckpointMetadata,
    StateFile,
    TableCheckpoint,
    TableKind,
    Totals,
)
from resurgence.storage.object_store import ObjectStore
from resurgence.storage.parquet import ParquetEncoder

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SOURCE, WINDOW, SINK = (OperatorId(each) for each in ("source-rides", "window-7f", "sink-hourly"))
MINUTE = 60_000_000
ROWS_IN, BAD, LATE, KEPT, ROWS_OUT = 100, 2, 3, 90, 7
"""What every epoch counts."""

SCHEMA = {"bin": "long", "k0": "string", "a0": "long", "a1_sum": "double"}


def schema_text(columns: Mapping[str, object] = SCHEMA) -> str:
    """A schema as Spark writes it."""
    fields = [
        {"metadata": {}, "name": name, "nullable": True, "type": kind}
        for name, kind in columns.items()
    ]
    return json.dumps({"fields": fields, "type": "struct"})


def offset_at(line: int) -> Offset:
    """A place in a file whose lines are all `{}`."""
    return {"line": line, "byte": 3 * line}


def state_rows(epoch: int) -> pa.RecordBatch:
    """What an epoch appends: two bins, fifty keys in each."""
    keys = [(bin_, key) for bin_ in (epoch, epoch + 1) for key in range(50)]
    return pa.RecordBatch.from_pydict(
        {
            "bin": pa.array([bin_ * MINUTE for bin_, _ in keys]),
            "k0": pa.array([f"key {key}" if key else None for _, key in keys]),
            "a0": pa.array([epoch * 1000 + key for _, key in keys]),
            "a1_sum": pa.array([key / 7 for _, key in keys]),
        }
    )


def counts_of(**changes: int) -> EpochCounts:
    """The counts of an epoch."""
    counted = {"rows_in": ROWS_IN, "bad": BAD, "late": LATE, "kept": KEPT, "out": ROWS_OUT}
    counted |= changes
    return EpochCounts(
        rows_in={SOURCE: counted["rows_in"]},
        bad_rows={SOURCE: counted["bad"]},
        late_rows={WINDOW: counted["late"]},
        kept_rows={WINDOW: counted["kept"]},
        rows_out={SINK: counted["out"]},
    )


@dataclass
class RealJob:
    """One job, its generation and the live files of its window."""

    backend: StateBackend
    claim: GenerationRecord
    files: list[StateFile] = field(default_factory=list)
    totals: Totals | None = None
    unique: itertools.count[int] = field(default_factory=itertools.count)

    @classmethod
    def at(cls, url: str, name: str = "rides") -> RealJob:
        backend = StateBackend(ObjectStore(url), JobName(name))
        return cls(backend, backend.claim_generation(NOW))

    def path(self, relative: str) -> Path:
        """Where an object lies on the disk."""
        return Path(self.backend.store.url) / relative

    def manifest_path(self, epoch: int, attempt: int = 0) -> str:
        return self.backend.paths.manifest(Epoch(epoch), attempt)

    def write_file(self, epoch: int, rows: pa.RecordBatch | None = None) -> StateFile:
        rows = state_rows(epoch) if rows is None else rows
        encoder = ParquetEncoder(("bin",))
        encoder.add(rows)
        encoded = encoder.finish()
        assert encoded is not None
        folder = self.backend.paths.table(WINDOW, "partials")
        path = f"{folder}/{epoch}-{self.claim.generation}-0-{next(self.unique):012x}.parquet"
        assert self.backend.store.create(path, encoded.data)
        bins = rows.column("bin").to_pylist()
        return StateFile(
            path=path,
            subtask=0,
            epoch=Epoch(epoch),
            rows=encoded.rows,
            bytes=len(encoded.data),
            key_groups=2**64 - 1,
            time_start=min(bins),
            time_end=max(bins),
            digest=encoded.digest,
        )

    def metadata(
        self, epoch: int, read: InputRange, schema: str
    ) -> list[OperatorCheckpointMetadata]:
        common: dict[str, Any] = {
            "job": self.claim.job,
            "epoch": epoch,
            "generation": self.claim.generation,
            "parallelism": 1,
            "watermark": epoch * MINUTE,
        }
        tables = {
            SOURCE: {"offsets": TableCheckpoint(kind=TableKind.GLOBAL, values=read.end)},
            WINDOW: {
                "partials": TableCheckpoint(
                    kind=TableKind.TIME, schema_text=schema, files=tuple(self.files)
                )
            },
            SINK: {
                "staged": TableCheckpoint(
                    kind=TableKind.GLOBAL,
                    values={"rows": 7, "files": [{"path": "x", "rows": 7, "bytes": 70}]},
                )
            },
        }
        timers = tuple(file.time_start + MINUTE for file in self.files)
        return [
            OperatorCheckpointMetadata(
                **common,
                operator=operator,
                tables=held,
                input=read if operator == SOURCE else None,
                timers=timers if operator == WINDOW else (),
            )
            for operator, held in tables.items()
        ]

    def seal(
        self,
        epoch: int,
        *,
        attempt: int = 0,
        rows: pa.RecordBatch | None = None,
        file_changes: Mapping[str, Any] | None = None,
        schema: str | None = None,
        identity: str | None = None,
        counts: EpochCounts | None = None,
        totals: Totals | None = None,
        start: int | None = None,
        parent: int | None = None,
    ) -> Manifest:
        """Write a file, the metadata and the manifest of an epoch."""
        file = self.write_file(epoch, rows)
        self.files.append(file.model_copy(update=dict(file_changes or {})))
        read = InputRange(
            start=offset_at(ROWS_IN * (epoch - 1) if start is None else start),
            end=offset_at(ROWS_IN * epoch),
            rows=ROWS_IN,
        )
        digests = self.backend.write_metadata(self.metadata(epoch, read, schema or schema_text()))
        counts = counts or counts_of()
        before = self.totals or Totals(since=Epoch(epoch), counts=EpochCounts())
        self.totals = totals or Totals(since=before.since, counts=before.counts.plus(counts))
        manifest = Manifest(
            job=JobIdentity(identity or self.claim.job),
            epoch=Epoch(epoch),
            attempt=attempt,
            generation=self.claim.generation,
            parent=Epoch(epoch - 1 if parent is None else parent),
            operators=digests,
            inputs={SOURCE: read},
            counts=counts,
            totals=self.totals,
            began_at=NOW - timedelta(seconds=2),
            sealed_at=NOW,
        )
        self.backend.publish(manifest)
        return manifest

    def commit(self, manifest: Manifest, counts: EpochCounts | None = None) -> None:
        self.backend.record_committed(
            CommittedRecord(
                job=manifest.job,
                epoch=manifest.epoch,
                generation=manifest.generation,
                inputs=manifest.inputs,
                counts=counts or manifest.counts,
                committed_at=NOW,
            )
        )

    def run(self, *epochs: int) -> None:
        for epoch in epochs:
            self.commit(self.seal(epoch))

    def plan(self) -> LoadPlan:
        """Claim the next generation and plan its load."""
        self.claim = self.backend.claim_generation(NOW)
        return self.backend.prepare_checkpoint_load(self.claim, 1)

    def chosen(self) -> int:
        """The epoch that a restore chooses."""
        return int(self.plan().epoch or NO_EPOCH)
