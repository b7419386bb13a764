"""Views of the retained checkpoints: their content and their faults.

Only reads: no generation is claimed, so a running job is neither fenced out nor disturbed. Its
retention may delete a checkpoint while it is being read. The order of deletion distinguishes that
from damage: a manifest is deleted before what it names, so a missing object is damage only if the
manifest still exists afterwards.

The files themselves are not opened here; `verification` does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any

from resurgence.clock import seconds
from resurgence.errors import (
    ConfigError,
    NoValidCheckpoint,
)
from resurgence.ids import Epoch, JobIdentity, JobName, OperatorId
from resurgence.state.backend import StateBackend
from resurgence.state.paths import generation_of
from resurgence.state.protocol.checkpoint_records import (
    CheckpointRecords,
    condemned_reasons,
    judge_checkpoint,
    read_checkpoint,
)
from resurgence.state.protocol.decisions import (
    EpochObjects,
    dead_ranges,
    is_dead,
    living,
    lost_seal,
)
from resurgence.state.records import (
    UNUSABLE,
    CommittedRecord,
    Manifest,
    OperatorCheckpointMetadata,
    StateFile,
    decode,
)
from resurgence.storage.object_store import ObjectStore

_THREADS = 8
"""Records are small, so reading them is mostly latency."""


class CheckpointStatus(StrEnum):
    """Whether a checkpoint is usable."""

    VALID = "valid"
    DAMAGED = "damaged"
    """An object that it names is missing or does not match its digest."""
    CONDEMNED = "condemned"
    """Marked as unusable: it is never chosen again."""
    DEAD = "dead"
    """Rolled back: it is never chosen again."""
    NEWER = "newer format"
    """Written by a newer release: this one cannot judge it."""


@dataclass(frozen=True)
class CheckpointView:
    """One sealed checkpoint with its readable records."""

    epoch: Epoch
    attempt: int | None
    """None: the sinks are committed, so there was a manifest, but it is missing."""
    status: CheckpointStatus
    reasons: tuple[str, ...] = ()
    records: CheckpointRecords = field(default_factory=CheckpointRecords)
    is_committed: bool = False
    committed: CommittedRecord | None = None
    """None also if the record is unreadable; `committed_fault` is the reason."""
    committed_fault: str | None = None

    @property
    def manifest(self) -> Manifest | None:
        return self.records.manifest

    @property
    def operators(self) -> Mapping[OperatorId, OperatorCheckpointMetadata]:
        return self.records.operators

    @property
    def stands(self) -> bool:
        """A restore may choose it, if it is intact."""
        missing = self.attempt is None
        unusable = (CheckpointStatus.CONDEMNED, CheckpointStatus.DEAD)
        return not missing and self.status not in unusable

    @property
    def files(self) -> tuple[StateFile, ...]:
        """All state files that it names."""
        return tuple(file for file, _ in self.records.state_files())

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def duration(self) -> timedelta | None:
        """Time from the start of the epoch to its seal; None if the manifest is unreadable."""
        if self.manifest is None:
            return None
        return self.manifest.sealed_at - self.manifest.began_at

    def summary(self) -> dict[str, Any]:
        """Return the row of `checkpoints list` and of the SQL table `checkpoints`."""
        manifest = self.manifest
        return {
            "epoch": self.epoch,
            "attempt": self.attempt,
            "generation": manifest.generation if manifest else None,
            "parent": manifest.parent if manifest else None,
            "began_at": manifest.began_at if manifest else None,
            "sealed_at": manifest.sealed_at if manifest else None,
            "duration": None if self.duration is None else seconds(self.duration),
            "operators": len(manifest.operators) if manifest else None,
            "state_rows": self.rows,
            "bytes": self.bytes,
            "files": len(self.files),
            "committed": self.is_committed,
            "finished": manifest.finished if manifest else None,
            "status": str(self.status),
            "reasons": list(self.reasons),
        }


def job_names(store: ObjectStore) -> tuple[JobName, ...]:
    """Return the jobs that have a folder in a state dir."""
    found = {
        each.path.split("/", 1)[0]
        for each in store.list("")
        if generation_of(each.path) is not None
    }
    return tuple(JobName(name) for name in sorted(found))


def kept_checkpoints(backend: StateBackend) -> tuple[CheckpointView, ...]:
    """Return all retained checkpoints, including condemned ones, oldest first. State files are
    compared with one listing; they are not opened.
    """
    epochs = backend.epochs()
    if not epochs:
        return ()
    job, rollback = backend.identity()
    dead = dead_ranges(backend.rollbacks(rollback))
    with ThreadPoolExecutor(_THREADS) as pool:
        read = list(pool.map(lambda each: _views(backend, each, job), epochs.values()))
    # Listed after the manifests, so that the files of a checkpoint sealed meanwhile are included.
    sizes = backend.file_sizes()
    judged = (
        replace(view, status=CheckpointStatus.DEAD, reasons=())
        if is_dead(view.epoch, dead)
        else _judged(view, job, sizes)
        for epoch in read
        for view in epoch
    )
    return tuple(view for view in judged if not _deleted_meanwhile(backend, view))


def newest_checkpoint(backend: StateBackend) -> CheckpointView | None:
    """Return the checkpoint that a restore would choose; None if the job has sealed none. Older
    ones are read only if newer ones are unusable.
    """
    while True:
        epochs = backend.epochs()
        if not epochs:
            return None
        job, rollback = backend.identity()
        alive = living(epochs, dead_ranges(backend.rollbacks(rollback)))
        sizes = backend.file_sizes()
        unusable: list[CheckpointView] = []
        for epoch in sorted(alive, reverse=True):
            for view in _views(backend, alive[epoch], job):
                judged = _judged(view, job, sizes)
                if judged.status is CheckpointStatus.VALID:
                    return judged
                unusable.append(judged)
        # Retention may have deleted what was listed; then there are newer checkpoints.
        if not any(_deleted_meanwhile(backend, each) for each in unusable):
            break
    if unusable:
        raise _none_valid()
    return None


def _views(backend: StateBackend, objects: EpochObjects, job: JobIdentity) -> list[CheckpointView]:
    """Return the checkpoints in one epoch's folder, one per manifest."""
    committed, committed_fault = _committed(backend, objects, job)
    lost = lost_seal(objects)
    blank = CheckpointView(
        epoch=objects.epoch,
        attempt=None,
        status=CheckpointStatus.DAMAGED,
        reasons=(lost,) if lost else (),
        is_committed=objects.committed is not None,
        committed=committed,
        committed_fault=committed_fault,
    )
    found = [blank] if lost else []
    for attempt in sorted({*objects.manifests, *objects.condemned}):
        view = replace(blank, attempt=attempt, reasons=())
        if attempt in objects.manifests:
            records = read_checkpoint(backend.store, objects.manifests[attempt])
            view = replace(view, records=records)
        if attempt in objects.condemned:
            reasons = condemned_reasons(backend.store, objects.condemned[attempt])
            view = replace(view, status=CheckpointStatus.CONDEMNED, reasons=reasons)
        found.append(view)
    return found


def _judged(view: CheckpointView, job: JobIdentity, sizes: Mapping[str, int]) -> CheckpointView:
    if view.status is CheckpointStatus.CONDEMNED or view.attempt is None:
        return view
    found = judge_checkpoint(view.records, job, view.epoch, sizes)
    if found.faults:
        return replace(view, status=CheckpointStatus.DAMAGED, reasons=found.faults)
    if found.newer:
        return replace(view, status=CheckpointStatus.NEWER, reasons=found.newer)
    return replace(view, status=CheckpointStatus.VALID)


def _deleted_meanwhile(backend: StateBackend, view: CheckpointView) -> bool:
    """Return whether a checkpoint only seems damaged because retention has deleted it."""
    if view.status is not CheckpointStatus.DAMAGED or view.attempt is None:
        return False
    return backend.store.size(backend.paths.manifest(view.epoch, view.attempt)) is None


def _committed(
    backend: StateBackend, objects: EpochObjects, job: JobIdentity
) -> tuple[CommittedRecord | None, str | None]:
    if objects.committed is None:
        return None, None
    try:
        record = decode(CommittedRecord, backend.store.read(objects.committed), objects.committed)
    except UNUSABLE as error:
        return None, error.message
    if (record.job, record.epoch) != (job, objects.epoch):
        return None, f"{objects.committed} belongs to job {record.job}, epoch {record.epoch}"
    return record, None


def of_each_epoch(views: Iterable[CheckpointView]) -> dict[Epoch, CheckpointView]:
    """Return one checkpoint for each epoch: the one that is not condemned, or else the last."""
    chosen: dict[Epoch, CheckpointView] = {}
    for view in views:
        before = chosen.get(view.epoch)
        if (
            before is None
            or before.status is CheckpointStatus.CONDEMNED
            or view.status is CheckpointStatus.VALID
        ):
            chosen[view.epoch] = view
    return chosen


def checkpoint_of(views: Sequence[CheckpointView], epoch: int | None) -> CheckpointView:
    """Return the checkpoint of an epoch; by default the newest valid one."""
    if not views:
        raise ConfigError("there are no checkpoints yet", hint="Run the job first.")
    chosen = of_each_epoch(views)
    if epoch is not None:
        try:
            return chosen[Epoch(epoch)]
        except KeyError:
            retained = ", ".join(str(each) for each in chosen)
            raise ConfigError(
                f"there is no checkpoint of epoch {epoch}", hint=f"Choose one of: {retained}."
            ) from None
    for view in reversed(chosen.values()):
        if view.status is CheckpointStatus.VALID:
            return view
    raise _none_valid()


def _none_valid() -> NoValidCheckpoint:
    return NoValidCheckpoint(
        "none of the checkpoints is valid",
        hint="Run `resurgence checkpoints list` for the reasons. Use --epoch to choose one anyway.",
    )
