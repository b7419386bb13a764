"""Checkpoints as reports: all that are retained, and the faults of each."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.state.real_state import NOW, SOURCE, WINDOW, RealJob

from resurgence.errors import ConfigError, IdentityMissing, NoValidCheckpoint
from resurgence.ids import Epoch
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.checkpoints import (
    CheckpointStatus,
    CheckpointView,
    checkpoint_of,
    job_names,
    kept_checkpoints,
    of_each_epoch,
)
from resurgence.storage.object_store import ObjectStore, StoredObject

SAMPLES = Path(__file__).parents[3] / "samples"


@pytest.fixture
def real(tmp_path: Path) -> RealJob:
    made = RealJob.at(str(tmp_path))
    made.run(1, 2)
    return made


def statuses(real: RealJob) -> list[tuple[int, int | None, CheckpointStatus]]:
    return [(each.epoch, each.attempt, each.status) for each in kept_checkpoints(real.backend)]


def test_a_checkpoint_is_shown_with_what_it_holds(real: RealJob) -> None:
    first, second = kept_checkpoints(real.backend)
    assert (first.rows, len(first.files)) == (100, 1)
    assert (second.rows, len(second.files)) == (200, 2)
    assert second.bytes == sum(file.bytes for file in real.files)
    assert second.duration == timedelta(seconds=2)
    assert second.is_committed
    assert second.summary() == {
        "epoch": 2,
        "attempt": 0,
        "generation": 1,
        "parent": 1,
        "began_at": NOW - timedelta(seconds=2),
        "sealed_at": NOW,
        "duration": 2.0,
        "operators": 3,
        "state_rows": 200,
        "bytes": second.bytes,
        "files": 2,
        "committed": True,
        "finished": False,
        "status": "valid",
        "reasons": [],
    }


def test_a_job_without_checkpoints_has_none(tmp_path: Path) -> None:
    assert kept_checkpoints(RealJob.at(str(tmp_path)).backend) == ()


def test_an_epoch_that_was_never_sealed_is_not_a_checkpoint(real: RealJob) -> None:
    real.seal(3)
    real.path(real.manifest_path(3)).unlink()
    assert statuses(real) == [(1, 0, CheckpointStatus.VALID), (2, 0, CheckpointStatus.VALID)]


def test_an_uncommitted_checkpoint_is_shown_as_such(real: RealJob) -> None:
    real.seal(3)
    *_, last = kept_checkpoints(real.backend)
    assert (last.status, last.is_committed, last.committed) == (CheckpointStatus.VALID, False, None)


def test_a_committed_record_that_is_damaged_is_not_a_fault_of_the_checkpoint(
    real: RealJob,
) -> None:
    real.path(real.backend.paths.committed(Epoch(2))).write_text("damaged")
    *_, last = kept_checkpoints(real.backend)
    assert (last.status, last.is_committed, last.committed) == (CheckpointStatus.VALID, True, None)
    assert "committed.json is not JSON" in (last.committed_fault or "")


def state_file(real: RealJob) -> Path:
    return real.path(real.files[-1].path)


def metadata(real: RealJob) -> Path:
    return real.path(real.backend.paths.operator(Epoch(2), WINDOW, real.claim.generation))


def manifest(real: RealJob) -> Path:
    return real.path(real.manifest_path(2))


@pytest.mark.parametrize(
    ("which", "content", "reasons"),
    [
        (state_file, None, ["state file", "is missing"]),
        (state_file, b"short", ["has 5 bytes instead of"]),
        (metadata, None, ["metadata of window-7f is missing"]),
        (metadata, b"{}", ["metadata of window-7f does not match its digest"]),
        (manifest, b"{}", ["does not match its checksum"]),
    ],
    ids=["file gone", "file cut", "metadata gone", "metadata changed", "manifest changed"],
)
def test_faults_of_a_checkpoint_are_reported(
    real: RealJob, which: Callable[[RealJob], Path], content: bytes | None, reasons: list[str]
) -> None:
    path = which(real)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    first, last = kept_checkpoints(real.backend)
    assert (first.status, last.status) == (CheckpointStatus.VALID, CheckpointStatus.DAMAGED)
    assert len(last.reasons) == 1
    assert all(reason in last.reasons[0] for reason in reasons)


def test_all_faults_are_reported_and_not_only_the_first(real: RealJob) -> None:
    state_file(real).unlink()
    real.path(real.backend.paths.operator(Epoch(2), SOURCE, real.claim.generation)).unlink()
    *_, last = kept_checkpoints(real.backend)
    assert len(last.reasons) == 2


def test_a_manifest_lost_after_the_commit_is_reported_as_missing(real: RealJob) -> None:
    manifest(real).unlink()
    assert statuses(real) == [(1, 0, CheckpointStatus.VALID), (2, None, CheckpointStatus.DAMAGED)]


def test_a_condemned_checkpoint_is_shown_with_its_reasons_beside_the_next_attempt(
    real: RealJob,
) -> None:
    state_file(real).write_bytes(b"short")
    assert real.chosen() == 1
    del real.files[1:]
    real.seal(2, attempt=1)
    assert statuses(real) == [
        (1, 0, CheckpointStatus.VALID),
        (2, 0, CheckpointStatus.CONDEMNED),
        (2, 1, CheckpointStatus.VALID),
    ]
    views = kept_checkpoints(real.backend)
    assert "has 5 bytes instead of" in views[1].reasons[0]
    assert of_each_epoch(views)[Epoch(2)] is views[2]


def test_a_checkpoint_of_a_newer_format_is_not_called_damaged(real: RealJob) -> None:
    import hashlib

    body = b'{"version":99,"job":"j"}'
    seal = b',"checksum":"%s"}' % hashlib.sha256(body).hexdigest()[:16].encode()
    manifest(real).write_bytes(body.removesuffix(b"}") + seal)
    *_, last = kept_checkpoints(real.backend)
    assert last.status is CheckpointStatus.NEWER
    assert "format version 99" in last.reasons[0]


def test_epochs_that_were_rolled_back_are_dead(real: RealJob) -> None:
    real.run(3)
    claim = real.backend.claim_generation(NOW)
    real.backend.record_rollback(claim, Epoch(1), NOW)
    assert [status for *_, status in statuses(real)] == [
        CheckpointStatus.VALID,
        CheckpointStatus.DEAD,
        CheckpointStatus.DEAD,
    ]
    views = kept_checkpoints(real.backend)
    assert checkpoint_of(views, None).epoch == 1
    assert checkpoint_of(views, 3).status is CheckpointStatus.DEAD
    assert [view.stands for view in views] == [True, False, False]


def test_a_checkpoint_that_retention_deletes_meanwhile_is_not_shown_as_damaged(
    real: RealJob,
) -> None:
    class LateStore(ObjectStore):
        """The job's retention runs between two listings."""

        def list(self, prefix: str, after: str | None = None) -> tuple[StoredObject, ...]:
            if prefix.endswith("/tables"):
                real.path(real.manifest_path(1)).unlink()
                real.path(real.files[0].path).unlink()
            return super().list(prefix, after)

    backend = StateBackend(LateStore(real.backend.store.url), real.backend.paths.job)
    views = kept_checkpoints(backend)
    assert [view.epoch for view in views] == [2]


def test_inspection_changes_nothing(real: RealJob) -> None:
    state_file(real).unlink()
    folder = Path(real.backend.store.url)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    kept_checkpoints(real.backend)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_job_without_a_readable_identity_is_refused(real: RealJob) -> None:
    shutil.rmtree(real.path(real.backend.paths.generations))
    with pytest.raises(IdentityMissing):
        kept_checkpoints(real.backend)


def test_the_newest_valid_checkpoint_is_the_default(real: RealJob) -> None:
    state_file(real).unlink()
    views = kept_checkpoints(real.backend)
    assert checkpoint_of(views, None).epoch == 1
    assert checkpoint_of(views, 2).epoch == 2
    with pytest.raises(ConfigError, match="no checkpoint of epoch 7"):
        checkpoint_of(views, 7)


def test_without_a_valid_checkpoint_there_is_no_default() -> None:
    with pytest.raises(ConfigError, match="no checkpoints yet"):
        checkpoint_of([], None)
    damaged = CheckpointView(epoch=Epoch(1), attempt=0, status=CheckpointStatus.DAMAGED)
    with pytest.raises(NoValidCheckpoint):
        checkpoint_of([damaged], None)


def test_jobs_are_found_by_their_generations(real: RealJob) -> None:
    RealJob.at(real.backend.store.url, "another")
    real.backend.store.create("logs/rides.log", b"")
    assert job_names(real.backend.store) == ("another", "rides")
