"""Requests per epoch: few, and the same however much history, state and generations there are."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.unit.state.conftest import NOW, Job

from resurgence.errors import Retired, StorageError
from resurgence.ids import Epoch, JobName
from resurgence.state.backend import StateBackend
from resurgence.state.protocol.checkpoint_records import CheckpointRecords, read_checkpoint
from resurgence.state.retention import Retention
from resurgence.storage.object_store import ObjectStore, StoredObject

KEEP = 3


class CountingStore(ObjectStore):
    """Notes every request: what it does, and to which kind of object."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked: list[str] = []
        self.fails_to_delete = False
        self.waits: threading.Barrier | None = None

    def create(self, path: str, data: bytes) -> bool:
        self.asked.append(f"create {_kind(path)}")
        if self.waits is not None and "/operator-" in path:
            self.waits.wait()
        return super().create(path, data)

    def read(self, path: str) -> bytes:
        self.asked.append(f"read {_kind(path)}")
        return super().read(path)

    def size(self, path: str) -> int | None:
        self.asked.append(f"size {_kind(path)}")
        return super().size(path)

    def list(self, prefix: str, after: str | None = None) -> tuple[StoredObject, ...]:
        self.asked.append(f"list {prefix.rsplit('/', 1)[-1]}")
        return super().list(prefix, after)

    def delete(self, paths: Iterable[str]) -> None:
        if self.fails_to_delete:
            raise StorageError("cannot delete: connection refused")
        listed = [*paths]
        if listed:
            self.asked.append(f"delete {'+'.join(sorted({_kind(path) for path in listed}))}")
        super().delete(listed)


def _kind(path: str) -> str:
    folder, _, name = path.split("/", 1)[1].partition("/")
    return name.rsplit("/", 1)[-1].split("-")[0].split(".")[0] if folder == "epochs" else folder


PUBLISH = ["list generations", "create manifest", "create committed"]
METADATA = ["create operator"] * 2
RETAIN = ["list generations", "delete manifest", "delete committed+operator+tables"]


class Scene:
    """A job that runs epochs and a retention round after each, as a worker does."""

    def __init__(self, folder: Path) -> None:
        self.store = CountingStore(str(folder))
        backend = StateBackend(self.store, JobName("rides"))
        self.job = Job(folder, backend, backend.claim_generation(NOW))
        self.epoch = 0
        self.live = 0
        """State files that every checkpoint names."""
        self.start()

    def start(self) -> None:
        self.job.claim_again()
        self.retention = Retention(self.job.backend, KEEP, self.job.claim.generation)

    def add_files(self, count: int) -> None:
        self.job.files[:0] = [self.job.write_file(self.epoch) for _ in range(count)]
        self.live += count

    def seal(self) -> CheckpointRecords:
        """Run the next epoch; it replaces the file of the epoch before."""
        self.epoch += 1
        del self.job.files[self.live :]
        self.job.run(self.epoch)
        path = self.job.backend.paths.manifest(Epoch(self.epoch), 0)
        return read_checkpoint(ObjectStore(self.store.url), path)

    def run(self, epochs: int, *, look: bool = False) -> list[str]:
        """Run epochs; the requests of the last one, besides the state file."""
        for _ in range(epochs):
            self.store.asked.clear()
            self.retention.run(sealed=[self.seal()], look=look)
        return [each for each in self.store.asked if each != "create tables"]

    def stored(self, part: str) -> set[str]:
        return {each.path for each in self.store.list("") if part in each.path}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_an_epoch_is_published_in_four_steps_and_retained_in_three(scene: Scene) -> None:
    assert scene.run(KEEP + 2) == [*METADATA, *PUBLISH, *RETAIN]


def test_the_metadata_of_all_operators_is_written_at_the_same_time(scene: Scene) -> None:
    scene.store.waits = threading.Barrier(len(METADATA), timeout=20)
    scene.seal()


def test_the_requests_of_an_epoch_do_not_grow_with_the_history(scene: Scene) -> None:
    early = scene.run(KEEP + 2)
    assert scene.run(50) == early


def test_the_requests_of_an_epoch_do_not_grow_with_the_state(scene: Scene) -> None:
    before = scene.run(KEEP + 2)
    scene.add_files(200)
    assert scene.run(KEEP + 2) == before


def test_the_requests_of_an_epoch_do_not_grow_with_the_generations(scene: Scene) -> None:
    before = scene.run(KEEP + 2)
    for _ in range(30):
        scene.start()
    scene.run(1)
    assert scene.run(1) == before


def test_the_fence_lists_only_what_comes_after_its_own_generation(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    listed = CountingStore.list

    def counted(
        self: CountingStore, prefix: str, after: str | None = None
    ) -> tuple[StoredObject, ...]:
        answer = listed(self, prefix, after)
        found.append(len(answer))
        return answer

    scene.start()
    monkeypatch.setattr(CountingStore, "list", counted)
    scene.job.backend.require_newest(scene.job.claim.generation)
    assert found == [0]


def test_a_claim_that_skipped_numbers_fences_out_the_others(scene: Scene) -> None:
    mine = scene.job.claim
    later = mine.model_copy(update={"generation": mine.generation + 7})
    scene.store.create(scene.job.backend.paths.generation(later.generation), later.encode())
    with pytest.raises(Retired):
        scene.job.backend.require_newest(mine.generation)


# ---------------------------------------------------------------- what a round knows


def test_rounds_that_do_not_look_leave_what_rounds_that_look_leave(tmp_path: Path) -> None:
    left = []
    for look in (False, True):
        scene = Scene(tmp_path / str(look))
        scene.add_files(2)
        scene.run(12, look=look)
        left.append(scene.stored("/epochs/") | scene.stored("/tables/"))
    assert left[0] == left[1]
    assert len(left[0]) == KEEP * 4 + KEEP + 2


def test_a_file_that_no_checkpoint_names_is_found_by_the_next_look(scene: Scene) -> None:
    """A task that failed or ran twice leaves one."""
    scene.run(1)
    debris = scene.job.write_file(2).path
    scene.run(4)
    assert debris in scene.stored("/tables/")
    scene.run(1, look=True)
    assert debris not in scene.stored("/tables/")


def test_a_round_after_one_that_failed_looks_again(scene: Scene) -> None:
    scene.run(KEEP)
    scene.store.fails_to_delete = True
    with pytest.raises(StorageError):
        scene.run(1)
    scene.store.fails_to_delete = False
    assert "list epochs" in scene.run(1)
    assert len(scene.stored("/manifest-")) == KEEP


def test_a_round_of_a_fenced_generation_deletes_nothing(scene: Scene) -> None:
    scene.run(KEEP)
    sealed = scene.seal()
    scene.job.claim_again()
    before = scene.stored("")
    with pytest.raises(Retired):
        scene.retention.run(sealed=[sealed], look=False)
    assert scene.stored("") == before


def test_rollbacks_are_read_once(scene: Scene) -> None:
    scene.run(3)
    scene.job.backend.record_rollback(scene.job.claim, Epoch(2), NOW)
    scene.start()
    scene.job.files = scene.job.files[:0]
    first = scene.run(1, look=True)
    assert "read rollbacks" in first
    assert "read rollbacks" not in scene.run(1, look=True)
