"""Background work: retention, sweeping, and verification of the newest checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from tests.unit.state.real_state import RealJob

from resurgence.config import CheckpointSettings
from resurgence.engine.epochs.engine import Engine
from resurgence.faults import FaultInjector
from resurgence.ids import Epoch
from resurgence.state.inspection.verification import Verification
from resurgence.state.protocol.checkpoint_records import read_checkpoint
from resurgence.worker.upkeep import Upkeep


@dataclass
class RecordingEngine:
    """What upkeep asks of an engine."""

    in_flight: Epoch | None = None
    in_use: frozenset[str] = frozenset()
    swept: list[int] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)

    @property
    def compaction(self) -> RecordingEngine:
        return self

    def files_in_use(self) -> frozenset[str]:
        return self.in_use

    def sweep(self, epoch: Epoch) -> None:
        self.swept.append(epoch)

    def forget(self, before: Epoch) -> None:
        self.forgotten.append(before)


@dataclass
class Scene:
    job: RealJob
    engine: RecordingEngine = field(default_factory=RecordingEngine)
    damaged: list[Verification] = field(default_factory=list)

    def open(self, **settings: object) -> Upkeep:
        return Upkeep(
            self.job.backend,
            cast(Engine, self.engine),
            CheckpointSettings.model_validate(settings),
            self.job.claim.generation,
            FaultInjector((), self.job.backend.store, self.job.backend.paths.job),
            self.damaged.append,
        )

    def after(self, epoch: int, upkeep: Upkeep | None = None, **settings: object) -> None:
        """One round, to its end."""
        upkeep = upkeep or self.open(**settings)
        checkpoint = read_checkpoint(self.job.backend.store, self.job.manifest_path(epoch))
        upkeep.after(Epoch(epoch), checkpoint)
        upkeep.finish()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    job = RealJob.at(str(tmp_path))
    job.run(1, 2, 3)
    return Scene(job)


def test_a_round_deletes_old_checkpoints_and_sweeps_committed_output(scene: Scene) -> None:
    scene.after(3, keep=2)
    assert not scene.job.path(scene.job.manifest_path(1)).exists()
    assert scene.job.path(scene.job.manifest_path(2)).exists()
    assert scene.engine.swept == [3]


def test_sinks_prune_epochs_that_no_retained_checkpoint_needs(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.after(3, keep=2)
    assert scene.engine.forgotten == [], "one listing for every few epochs"
    monkeypatch.setattr("resurgence.worker.upkeep._EXPIRE_EVERY", 2)
    scene.after(3, keep=2)
    assert scene.engine.forgotten == [2]


def test_rounds_look_at_what_is_stored_once_a_minute(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep = scene.open(keep=2)
    scene.after(3, upkeep)
    debris = scene.job.write_file(3)
    scene.job.run(4)
    scene.after(4, upkeep)
    assert not scene.job.path(scene.job.manifest_path(2)).exists()
    assert scene.job.path(debris.path).exists()
    assert scene.engine.swept == [3]
    monkeypatch.setattr("resurgence.worker.upkeep._LOOK_EVERY", 0.0)
    scene.job.run(5)
    scene.after(5, upkeep)
    assert not scene.job.path(debris.path).exists()
    assert scene.engine.swept == [3, 5]


def test_a_checkpoint_that_was_condemned_does_not_count_as_retained(scene: Scene) -> None:
    upkeep = scene.open(keep=2, verify_interval=timedelta(microseconds=1))
    damage_newest(scene)
    scene.after(3, upkeep)
    del scene.job.files[-1]
    scene.job.run(4)
    scene.after(4, upkeep)
    assert [scene.job.path(scene.job.manifest_path(each)).exists() for each in (1, 2, 4)] == [
        False,
        True,
        True,
    ]


def test_files_of_a_compaction_under_way_are_spared(scene: Scene) -> None:
    waiting = scene.job.write_file(2)
    scene.engine.in_flight = Epoch(2)
    scene.after(3)
    assert scene.job.path(waiting.path).exists()
    scene.engine.in_flight = None
    scene.after(3)
    assert not scene.job.path(waiting.path).exists()


def test_files_that_the_engine_still_reads_are_spared(scene: Scene) -> None:
    read = scene.job.write_file(2)
    scene.engine.in_use = frozenset({read.path})
    scene.after(3)
    assert scene.job.path(read.path).exists()


def test_files_of_an_epoch_after_the_round_began_are_spared(scene: Scene) -> None:
    """The listing may be slow, and see more epochs than were there when the round began."""
    later = scene.job.write_file(3)
    scene.after(2)
    assert scene.job.path(later.path).exists()


def damage_newest(scene: Scene) -> None:
    path = scene.job.path(scene.job.files[-1].path)
    data = bytearray(path.read_bytes())
    data[30] ^= 4
    path.write_bytes(data)


def test_damage_in_the_newest_checkpoint_is_detected_condemned_and_reported(scene: Scene) -> None:
    damage_newest(scene)
    scene.after(3, verify_interval=timedelta(microseconds=1))
    (found,) = scene.damaged
    assert found.epoch == 3
    assert scene.job.path(scene.job.backend.paths.condemned(Epoch(3), 0)).exists()


@pytest.mark.parametrize("interval", [timedelta(0), timedelta(hours=1)])
def test_verification_runs_only_when_it_is_due(scene: Scene, interval: timedelta) -> None:
    damage_newest(scene)
    scene.after(3, verify_interval=interval)
    assert scene.damaged == []


def test_a_valid_checkpoint_is_not_condemned(scene: Scene) -> None:
    before = scene.job.path("rides/epochs").rglob("condemned*")
    scene.after(3, verify_interval=timedelta(microseconds=1))
    assert scene.damaged == []
    assert list(before) == []
