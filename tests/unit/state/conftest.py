"""A job whose checkpoints are written by the test, through the real backend into a real store."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from resurgence.ids import Epoch, JobName, OperatorId
from resurgence.state.backend import StateBackend
from resurgence.state.load_plan import LoadPlan
from resurgence.state.records import (
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
from resurgence.storage.object_store import ObjectStore

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SOURCE, WINDOW = OperatorId("source-1"), OperatorId("window-1")
ALL_GROUPS = 2**64 - 1


def input_of(epoch: int) -> InputRange:
    """Every epoch reads ten rows."""
    return InputRange(start={"row": 10 * (epoch - 1)}, end={"row": 10 * epoch}, rows=10)


@dataclass
class Job:
    """One job and its current generation."""

    folder: Path
    backend: StateBackend
    claim: GenerationRecord
    files: list[StateFile] = field(default_factory=list)
    """The live files of the window operator."""
    unique: itertools.count[int] = field(default_factory=itertools.count)

    def claim_again(self) -> None:
        self.claim = self.backend.claim_generation(NOW)

    def path(self, relative: str) -> Path:
        return self.folder / relative

    def write_file(self, epoch: int, data: bytes = b"rows") -> StateFile:
        """A state file of an epoch, written and not yet named by anything."""
        folder = self.backend.paths.table(WINDOW, "partials")
        path = f"{folder}/{epoch}-{self.claim.generation}-0-{next(self.unique):012x}.parquet"
        assert self.backend.store.create(path, data)
        return StateFile(
            path=path,
            subtask=0,
            epoch=Epoch(epoch),
            rows=1,
            bytes=len(data),
            key_groups=ALL_GROUPS,
            time_start=0,
            time_end=0,
            digest="",
        )

    def metadata(self, epoch: int) -> list[OperatorCheckpointMetadata]:
        common = {
            "job": self.claim.job,
            "epoch": epoch,
            "generation": self.claim.generation,
            "parallelism": 1,
        }
        table = TableCheckpoint(kind=TableKind.TIME, files=tuple(self.files))
        return [
            OperatorCheckpointMetadata.model_validate(
                {**common, "operator": SOURCE, "input": input_of(epoch)}
            ),
            OperatorCheckpointMetadata.model_validate(
                {**common, "operator": WINDOW, "tables": {"partials": table}}
            ),
        ]

    def seal(self, epoch: int, attempt: int = 0) -> Manifest:
        """Write a file, the metadata and the manifest of an epoch."""
        self.files.append(self.write_file(epoch))
        digests = self.backend.write_metadata(self.metadata(epoch))
        manifest = Manifest(
            job=self.claim.job,
            epoch=Epoch(epoch),
            attempt=attempt,
            generation=self.claim.generation,
            parent=Epoch(epoch - 1),
            operators=digests,
            inputs={SOURCE: input_of(epoch)},
            totals=Totals(since=Epoch(1), counts=EpochCounts()),
            began_at=NOW,
            sealed_at=NOW,
        )
        self.backend.publish(manifest)
        return manifest

    def commit(self, epoch: int) -> None:
        self.backend.record_committed(
            CommittedRecord(
                job=self.claim.job,
                epoch=Epoch(epoch),
                generation=self.claim.generation,
                inputs={SOURCE: input_of(epoch)},
                committed_at=NOW,
            )
        )

    def run(self, *epochs: int) -> None:
        for epoch in epochs:
            self.seal(epoch)
            self.commit(epoch)

    def plan(self, damaged: frozenset[str] = frozenset()) -> LoadPlan:
        """Claim the next generation and plan its load."""
        self.claim_again()
        return self.backend.prepare_checkpoint_load(self.claim, 1, damaged)

    def stored(self) -> dict[str, bytes]:
        """Everything that lies in the store."""
        return {
            each.path: self.backend.store.read(each.path) for each in self.backend.store.list("")
        }


@pytest.fixture
def job(tmp_path: Path) -> Job:
    backend = StateBackend(ObjectStore(str(tmp_path)), JobName("rides"))
    return Job(tmp_path, backend, backend.claim_generation(NOW))
