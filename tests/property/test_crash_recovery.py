"""A crash before or after any write, and damage in between, neither loses nor duplicates rows.

A job without Spark runs on the real backend over a real store. It reads numbers, keeps their sum as
state, and emits every number with the sum up to it. How many numbers an epoch takes differs from
generation to generation, so an epoch that is replayed over other input shows in the output. Every
process compares the sink with its state first: no crash and no damage may look like a restored copy.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resurgence.connectors.contract import CoveredInput, SinkMemory
from resurgence.engine.epochs.sink_agreement import recorded_inputs, require_agreement
from resurgence.errors import Retired, SinkConflict
from resurgence.ids import NO_EPOCH, Epoch, JobIdentity, JobName, OperatorId
from resurgence.state.backend import StateBackend
from resurgence.state.load_plan import LoadPlan
from resurgence.state.protocol.checkpoint_records import CheckpointRecords, read_checkpoint
from resurgence.state.records import (
    CommittedRecord,
    EpochCounts,
    InputRange,
    Manifest,
    ObjectDigest,
    OperatorCheckpointMetadata,
    StateFile,
    TableCheckpoint,
    TableKind,
    Totals,
)
from resurgence.state.retention import Retention
from resurgence.storage.object_store import ObjectStore, StoredObject

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SOURCE, SUM = OperatorId("source-1"), OperatorId("sum-1")
NUMBERS = list(range(1, 13))
EXPECTED = [[number, sum(NUMBERS[: index + 1])] for index, number in enumerate(NUMBERS)]
KEEP = 3

Rows = list[list[int]]


class Crashed(Exception):
    """The process is gone."""


@dataclass
class Fate:
    """Counts every write of a job's life, over all its processes, and ends a process at chosen
    ones.
    """

    before: frozenset[int] = frozenset()
    after: frozenset[int] = frozenset()
    writes: int = 0

    def enter(self) -> int:
        self.writes += 1
        if self.writes in self.before:
            raise Crashed
        return self.writes

    def leave(self, write: int) -> None:
        if write in self.after:
            raise Crashed


class CrashingStore(ObjectStore):
    """A real store, under the control of fate."""

    def __init__(self, url: str, fate: Fate) -> None:
        super().__init__(url)
        self._fate = fate

    def create(self, path: str, data: bytes) -> bool:
        write = self._fate.enter()
        created = super().create(path, data)
        self._fate.leave(write)
        return created

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            write = self._fate.enter()
            super().delete([path])
            self._fate.leave(write)


class OneByOne(StateBackend):
    """Writes metadata one after the other, so that a fate is the same whenever it is tried."""

    def write_metadata(
        self, metadata: Iterable[OperatorCheckpointMetadata]
    ) -> dict[OperatorId, ObjectDigest]:
        digests = {}
        for each in metadata:
            digests.update(super().write_metadata([each]))
        return digests


@dataclass
class Sink:
    """What readers see, by (job, epoch)."""

    fate: Fate
    visible: dict[tuple[JobIdentity, int], Rows] = field(default_factory=dict)
    covered: dict[tuple[JobIdentity, int], CoveredInput] = field(default_factory=dict)

    def commit(self, job: JobIdentity, epoch: int, rows: Rows, covered: CoveredInput) -> None:
        write = self.fate.enter()
        known = self.visible.setdefault((job, epoch), rows)
        assert known == rows, f"epoch {epoch} was committed as {known} and again as {rows}"
        self.covered[job, epoch] = covered
        self.fate.leave(write)

    def recall(self, job: JobIdentity, epochs: Collection[Epoch]) -> SinkMemory:
        held = {Epoch(epoch): each for (owner, epoch), each in self.covered.items() if owner == job}
        return SinkMemory(
            newest=max(held, default=NO_EPOCH),
            inputs={epoch: each for epoch, each in held.items() if epoch in epochs},
        )


class Process:
    """One generation of the job, from claim to the end of its input, or to its death."""

    def __init__(self, backend: StateBackend, sink: Sink) -> None:
        self._backend = backend
        self._sink = sink

    def run(self) -> None:
        claim = self._backend.claim_generation(NOW)
        plan = self._backend.prepare_checkpoint_load(claim, 1)
        held = self._sink.recall(plan.job, recorded_inputs(plan).keys())
        try:
            require_agreement("out", plan, held)
        except SinkConflict:
            self._backend.require_newest(claim.generation)
            raise
        self._retention = Retention(self._backend, KEEP, claim.generation)
        total, position = 0, 0
        if plan.manifest is not None:
            values = plan.operators[SUM].metadata.tables["staged"].values
            (slices,) = plan.operators[SUM].subtasks["state"]
            total = int(self._backend.store.read(slices[0].file.path))
            position = _end(plan.operators[SOURCE].metadata.input)
            if plan.commit_pending:
                self._commit(
                    plan, plan.epoch, plan.manifest.inputs, json.loads(str(values["rows"]))
                )
        epoch = plan.epoch
        while position < len(NUMBERS):
            epoch = Epoch(epoch + 1)
            total, position = self._run_epoch(plan, epoch, total, position)

    def _run_epoch(
        self, plan: LoadPlan, epoch: Epoch, total: int, position: int
    ) -> tuple[int, int]:
        recorded = plan.recorded.get(epoch)
        if recorded is not None:
            read = recorded.inputs[SOURCE]
        else:
            end = min(len(NUMBERS), position + 1 + (plan.generation * 5 + epoch) % 3)
            read = InputRange(start={"row": position}, end={"row": end}, rows=end - position)
        assert read.start == {"row": position}, "an epoch begins where the one before it ended"
        rows: Rows = []
        for number in NUMBERS[position : _end(read)]:
            total += number
            rows.append([number, total])
        data = str(total).encode()
        folder = self._backend.paths.table(SUM, "state")
        path = f"{folder}/{epoch}-{plan.generation}-0-{epoch:012x}.parquet"
        assert self._backend.store.create(path, data)
        inputs = {SOURCE: read}
        metadata = _metadata(plan, epoch, read, path, len(data), rows)
        manifest = Manifest(
            job=plan.job,
            epoch=epoch,
            attempt=recorded.attempt if recorded else 0,
            generation=plan.generation,
            parent=Epoch(epoch - 1),
            operators=self._backend.write_metadata(metadata),
            inputs=inputs,
            finished=_end(read) == len(NUMBERS),
            totals=Totals(since=Epoch(1), counts=EpochCounts()),
            began_at=NOW,
            sealed_at=NOW,
        )
        self._backend.publish(manifest)
        self._commit(plan, epoch, inputs, rows)
        sealed = CheckpointRecords(manifest, {each.operator: each for each in metadata})
        self._retention.run(sealed=[sealed], look=epoch % 4 == 0)
        return total, _end(read)

    def _commit(
        self, plan: LoadPlan, epoch: Epoch, inputs: dict[OperatorId, InputRange], rows: Rows
    ) -> None:
        self._sink.commit(plan.job, epoch, rows, CoveredInput.of(inputs))
        self._backend.record_committed(
            CommittedRecord(
                job=plan.job,
                epoch=epoch,
                generation=plan.generation,
                inputs=inputs,
                committed_at=NOW,
            )
        )


def _end(read: InputRange | None) -> int:
    assert read is not None
    return int(str(read.end["row"]))


def _metadata(
    plan: LoadPlan, epoch: Epoch, read: InputRange, path: str, size: int, rows: Rows
) -> list[OperatorCheckpointMetadata]:
    file = StateFile(
        path=path,
        subtask=0,
        epoch=epoch,
        rows=1,
        bytes=size,
        key_groups=2**64 - 1,
        time_start=0,
        time_end=0,
        digest="",
    )
    common = {
        "job": plan.job,
        "epoch": epoch,
        "generation": plan.generation,
        "parallelism": 1,
    }
    tables = {
        "state": TableCheckpoint(kind=TableKind.KEY, files=(file,)),
        "staged": TableCheckpoint(kind=TableKind.GLOBAL, values={"rows": json.dumps(rows)}),
    }
    return [
        OperatorCheckpointMetadata.model_validate({**common, "operator": SOURCE, "input": read}),
        OperatorCheckpointMetadata.model_validate({**common, "operator": SUM, "tables": tables}),
    ]


# ---------------------------------------------------------------- damage


def whole_checkpoints(backend: StateBackend) -> list[tuple[str, str]]:
    """(manifest, state file) of every checkpoint that could be restored, oldest first."""
    found = []
    for objects in backend.epochs().values():
        if objects.standing is None:
            continue
        manifest_path = objects.manifests[objects.standing]
        records = read_checkpoint(backend.store, manifest_path)
        if records.unusable:
            continue
        (file,) = records.operators[SUM].tables["state"].files
        if backend.store.size(file.path) == file.bytes:
            found.append((manifest_path, file.path))
    return found


def damage_newest(folder: Path, kind: str) -> None:
    """Damage the newest checkpoint, if there is an older one to fall back to."""
    backend = OneByOne(ObjectStore(str(folder)), JobName("sums"))
    whole = whole_checkpoints(backend)
    if len(whole) < 2:
        return
    manifest, file = (folder / each for each in whole[-1])
    if kind == "file missing":
        file.unlink()
    elif kind == "manifest missing":
        manifest.unlink()
    else:
        data = bytearray(manifest.read_bytes())
        data[len(data) // 2] ^= 4
        manifest.write_bytes(bytes(data))


KINDS = ["file missing", "manifest missing", "bit flip"]


def live(folder: Path, fate: Fate, damages: Iterable[str | None] = ()) -> tuple[Sink, int]:
    """Start processes until one reaches the end; the sink, and how many it took."""
    sink, coming = Sink(fate), iter(damages)
    for processes in range(1, 500):
        backend = OneByOne(CrashingStore(str(folder), fate), JobName("sums"))
        try:
            Process(backend, sink).run()
        except Crashed:
            kind = next(coming, None)
            if kind is not None:
                damage_newest(folder, kind)
        else:
            return sink, processes
    raise AssertionError("the job never comes to its end")


def check(sink: Sink) -> None:
    """Everything once, in order, under consecutive numbers and one identity."""
    assert len({job for job, _ in sink.visible}) == 1
    epochs = sorted(epoch for _, epoch in sink.visible)
    assert epochs == list(range(1, len(epochs) + 1))
    rows = [row for _, output in sorted(sink.visible.items()) for row in output]
    assert rows == EXPECTED


def writes_without_crash() -> int:
    with tempfile.TemporaryDirectory() as folder:
        fate = Fate()
        sink, processes = live(Path(folder), fate)
        check(sink)
        assert processes == 1
        return fate.writes


def test_a_crash_before_or_after_any_write_neither_loses_nor_duplicates() -> None:
    for write in range(1, writes_without_crash() + 1):
        for fate in (Fate(before=frozenset({write})), Fate(after=frozenset({write}))):
            with tempfile.TemporaryDirectory() as folder:
                sink, processes = live(Path(folder), fate)
                check(sink)
                assert processes == 2


def test_a_process_that_always_crashes_after_a_few_writes_still_finishes() -> None:
    """Each process gets its generation claimed and one epoch done."""
    with tempfile.TemporaryDirectory() as folder:
        sink, processes = live(Path(folder), Fate(before=frozenset(range(14, 4000, 14))))
        check(sink)
        assert processes > 2


points = st.frozensets(st.integers(1, 120), max_size=12)


@settings(
    max_examples=70,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(before=points, after=points)
def test_random_crashes_neither_lose_nor_duplicate(
    before: frozenset[int], after: frozenset[int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sink, _ = live(Path(folder), Fate(before, after))
        check(sink)


@settings(
    max_examples=70,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    before=points,
    after=points,
    damages=st.lists(st.sampled_from([None, *KINDS]), max_size=24),
)
def test_random_crashes_and_damage_neither_lose_nor_duplicate(
    before: frozenset[int], after: frozenset[int], damages: list[str | None]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sink, _ = live(Path(folder), Fate(before, after), damages)
        check(sink)


# ---------------------------------------------------------------- a state dir restored from a copy


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(before=points, after=points, copied=st.integers(0, 6), restored=st.integers(1, 8))
def test_a_restored_backup_is_refused_or_neither_loses_nor_duplicates(
    before: frozenset[int], after: frozenset[int], copied: int, restored: int
) -> None:
    """The state dir is copied after one death and put back after a later one."""
    with tempfile.TemporaryDirectory() as folder:
        state, copy = Path(folder, "state"), Path(folder, "copy")
        state.mkdir()
        deaths = 0

        def disturb() -> None:
            nonlocal deaths
            if not list(state.rglob("generations/*.json")):
                # An empty state dir is another job: the sink tells them apart.
                return
            if deaths == copied:
                shutil.copytree(state, copy)
            if deaths == copied + restored:
                shutil.rmtree(state)
                shutil.copytree(copy, state)
            deaths += 1

        fate = Fate(before, after)
        sink = Sink(fate)
        while True:
            backend = OneByOne(CrashingStore(str(state), fate), JobName("sums"))
            try:
                Process(backend, sink).run()
            except Crashed:
                disturb()
            except SinkConflict:
                assert deaths > copied + restored, "nothing was restored"
                return
            else:
                break
        check(sink)


def test_a_backup_from_before_the_last_epochs_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:
        state, copy = Path(folder, "state"), Path(folder, "copy")
        fate = Fate(before=frozenset({20}))
        sink = Sink(fate)
        for attempt in range(2):
            backend = OneByOne(CrashingStore(str(state), fate), JobName("sums"))
            with pytest.raises(Crashed) if attempt == 0 else contextlib.nullcontext():
                Process(backend, sink).run()
            if attempt == 0:
                shutil.copytree(state, copy)
        shutil.rmtree(state)
        shutil.copytree(copy, state)
        with pytest.raises(SinkConflict, match="but the newest epoch that the state has"):
            Process(OneByOne(ObjectStore(str(state)), JobName("sums")), sink).run()
        check(sink)


# ---------------------------------------------------------------- processes that are slow, not dead


class Turns(Fate):
    """Lets a process take one step at a time, so that several can be interleaved."""

    def __init__(self) -> None:
        super().__init__()
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._abandoned = False
        self.ended = False
        self.finished = False
        self.defect: BaseException | None = None

    def enter(self) -> int:
        self._done.release()
        self._go.acquire()
        if self._abandoned:
            raise Crashed
        return super().enter()

    def play(self, process: Process) -> threading.Thread:
        def run() -> None:
            self._go.acquire()
            try:
                process.run()
                self.finished = True
            except (Crashed, Retired):
                pass
            except BaseException as error:
                self.defect = error
            self.ended = True
            self._done.release()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def advance(self) -> None:
        """Let the process go on to its next step, or to its end."""
        self._go.release()
        self._done.acquire()

    def abandon(self) -> None:
        self._abandoned = True
        while not self.ended:
            self.advance()


class SlowStore(CrashingStore):
    """Every look is a step, too: a process may be paused between reading and writing."""

    def list(self, prefix: str, after: str | None = None) -> tuple[StoredObject, ...]:
        self._fate.enter()
        return super().list(prefix, after)


@settings(
    max_examples=70,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(moves=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 14)), max_size=30))
def test_live_generations_never_publish_or_commit_against_each_other(
    moves: list[tuple[int, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sink = Sink(Fate())
        players: list[Turns] = []
        threads: list[threading.Thread] = []

        def start() -> Turns:
            turns = Turns()
            backend = OneByOne(SlowStore(folder, turns), JobName("sums"))
            seen_by = Sink(turns, sink.visible, sink.covered)
            threads.append(turns.play(Process(backend, seen_by)))
            players.append(turns)
            return turns

        try:
            start()
            for player, steps in moves:
                turns = players[player] if player < len(players) else start()
                for _ in range(steps):
                    if not turns.ended:
                        turns.advance()
            for turns in players:
                while not turns.ended:
                    turns.advance()
            while not players[-1].finished:
                assert players[-1].defect is None, players[-1].defect
                last = start()
                while not last.ended:
                    last.advance()
        finally:
            for turns in players:
                turns.abandon()
            for thread in threads:
                thread.join()
        assert [each.defect for each in players if each.defect is not None] == []
        check(sink)
