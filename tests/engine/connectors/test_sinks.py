"""File sinks: staged output is invisible, and commits are idempotent, whichever generation commits."""

from __future__ import annotations

import fcntl
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from resurgence.connectors.contract import (
    CoveredInput,
    Sink,
    SinkMemory,
    SourceSpan,
    StagedFile,
    StagedOutput,
)
from resurgence.connectors.filesystem import FilesystemSink, FilesystemSinkOptions
from resurgence.connectors.filesystem.published_files import PublishedFiles
from resurgence.connectors.formats.contract import WriteSettings
from resurgence.connectors.formats.json.lines import JSON
from resurgence.connectors.formats.json.writer import JsonSinkOptions
from resurgence.connectors.single_file import SingleFileSink, SingleFileSinkOptions
from resurgence.errors import SinkConflict, SinkError
from resurgence.ids import Epoch, Generation, JobIdentity, OperatorId
from resurgence.storage.object_store import ObjectStore

JOB, OTHER = JobIdentity("a1b2c3d4e5f6"), JobIdentity("f6e5d4c3b2a1")
NO_SPARK = cast(SparkSession, None)
"""Sinks of files commit without Spark."""

SETTINGS = WriteSettings(JsonSinkOptions())


def covering(epoch: int, rows: int = 1000) -> CoveredInput:
    """The input of an epoch, if each has so many rows."""
    span = SourceSpan(start={"line": (epoch - 1) * rows}, end={"line": epoch * rows})
    return CoveredInput(sources={OperatorId("source-in"): span})


def opened(sink: type[SingleFileSink | FilesystemSink], path: Path) -> Sink:
    """A sink that writes JSON."""
    if sink is SingleFileSink:
        return SingleFileSink(SingleFileSinkOptions.read({"path": str(path)}), SETTINGS)
    return FilesystemSink(FilesystemSinkOptions.read({"path": str(path)}), SETTINGS, JSON)


class Target:
    """A sink to try, and what a reader sees of it."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.is_file = kind == "single_file"
        self._path = folder / ("out.json" if self.is_file else "out")
        hidden = folder / ".out.json.resurgence" if self.is_file else self._path / ".resurgence"
        self.hidden = hidden
        url = f"file://{hidden if self.is_file else self._path}"
        self._store = ObjectStore(url)
        self._staging = "commits" if self.is_file else ".resurgence"

    def open(self) -> Sink:
        """The sink as a new process would have it."""
        return opened(SingleFileSink if self.is_file else FilesystemSink, self._path)

    def stage(self, epoch: int, *pieces: str, generation: int = 1, job: str = JOB) -> StagedOutput:
        """What Spark tasks would stage, without Spark."""
        files = []
        for number, text in enumerate(pieces):
            path = f"{self._staging}/{job}/staged/{epoch:010}-{generation}-{number}"
            assert self._store.create(path, text.encode())
            files.append(StagedFile(path=path, rows=1, bytes=len(text)))
        return StagedOutput(rows=len(files), files=tuple(files))

    def visible(self) -> list[str]:
        """All lines that a reader sees."""
        files = [self._path] if self.is_file else sorted(self._path.glob("[!.]*"))
        return [line for each in files for line in each.read_text().splitlines()]

    def staged(self) -> list[str]:
        """The names of what is staged."""
        return sorted(each.name for each in self.hidden.rglob("staged/*"))


@pytest.fixture(params=["single_file", "filesystem"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return Target(tmp_path, request.param)


def test_staged_output_is_visible_only_after_commit(target: Target) -> None:
    staged = target.stage(1, "a\n", "b\n")
    assert not target.is_file or not (target.hidden.parent / "out.json").exists()
    target.open().commit(NO_SPARK, JOB, Epoch(1), staged, covering(1))
    assert target.visible() == ["a", "b"]
    assert target.staged() == []


def test_commit_is_idempotent(target: Target) -> None:
    first, second = target.stage(1, "a\n"), target.stage(2, "b\n", "c\n")
    for epoch, staged in ((1, first), (1, first), (2, second), (2, second)):
        target.open().commit(NO_SPARK, JOB, Epoch(epoch), staged, covering(epoch))
    assert target.visible() == ["a", "b", "c"]


def test_a_zombie_that_commits_an_old_epoch_again_changes_nothing(target: Target) -> None:
    first = target.stage(1, "a\n")
    target.open().commit(NO_SPARK, JOB, Epoch(1), first, covering(1))
    target.open().commit(NO_SPARK, JOB, Epoch(2), target.stage(2, "b\n"), covering(2))
    target.open().commit(NO_SPARK, JOB, Epoch(1), first, covering(1))
    target.open().commit(
        NO_SPARK, JOB, Epoch(1), target.stage(1, "other\n", generation=2), covering(1)
    )
    assert target.visible() == ["a", "b"]
    assert target.staged() == []


def test_a_replay_with_other_files_keeps_the_committed_output(target: Target) -> None:
    target.open().commit(NO_SPARK, JOB, Epoch(1), target.stage(1, "a\n", "b\n"), covering(1))
    target.open().commit(
        NO_SPARK, JOB, Epoch(1), target.stage(1, "b\na\n", generation=2), covering(1)
    )
    assert target.visible() == ["a", "b"]
    assert target.staged() == []


class Stop(Exception):
    """Ends a commit in the middle."""


def interrupt(monkeypatch: pytest.MonkeyPatch, target: Target, staged: StagedOutput) -> None:
    """Fix the record of epoch 2 and die before anything of it is visible."""

    def stop(*_: object) -> None:
        raise Stop

    with monkeypatch.context() as patched:
        patched.setattr(PublishedFiles, "publish", stop)
        patched.setattr(SingleFileSink, "_write", stop)
        with pytest.raises(Stop):
            target.open().commit(NO_SPARK, JOB, Epoch(2), staged, covering(2))


def test_a_replay_completes_the_commit_in_progress_instead_of_its_own(
    monkeypatch: pytest.MonkeyPatch, target: Target
) -> None:
    target.open().commit(NO_SPARK, JOB, Epoch(1), target.stage(1, "a\n"), covering(1))
    interrupt(monkeypatch, target, target.stage(2, "b\n", "c\n"))
    assert target.visible() == ["a"]
    target.open().commit(
        NO_SPARK, JOB, Epoch(2), target.stage(2, "c\nb\n", generation=2), covering(2)
    )
    assert target.visible() == ["a", "b", "c"]
    assert target.staged() == []


def test_a_sweep_keeps_files_that_a_commit_in_progress_needs(
    monkeypatch: pytest.MonkeyPatch, target: Target
) -> None:
    """The checkpoint of the epoch may be lost meanwhile: then it is replayed, after a sweep."""
    target.open().commit(NO_SPARK, JOB, Epoch(1), target.stage(1, "a\n"), covering(1))
    interrupt(monkeypatch, target, target.stage(2, "b\n", "c\n"))
    target.stage(3, "never sealed\n")
    target.open().sweep(JOB, Epoch(9))
    assert target.staged() == ["0000000002-1-0", "0000000002-1-1"]
    target.open().commit(
        NO_SPARK, JOB, Epoch(2), target.stage(2, "c\nb\n", generation=2), covering(2)
    )
    assert target.visible() == ["a", "b", "c"]
    assert target.staged() == []


def test_discard_and_sweep_remove_output_that_will_never_be_committed(target: Target) -> None:
    target.open().commit(NO_SPARK, JOB, Epoch(1), target.stage(1, "a\n"), covering(1))
    kept = target.stage(2, "other job\n", job=OTHER)
    discarded = target.stage(2, "b\n")
    target.open().discard(discarded)
    target.open().discard(discarded)
    target.stage(3, "c\n", "d\n", generation=4)
    target.open().sweep(JOB, Epoch(9))
    assert target.staged() == [kept.files[0].path.rsplit("/", 1)[1]]
    assert target.visible() == ["a"]


def test_an_epoch_without_output_keeps_the_existing_output(target: Target) -> None:
    target.open().commit(NO_SPARK, JOB, Epoch(1), target.stage(1, "a\n"), covering(1))
    target.open().commit(NO_SPARK, JOB, Epoch(2), StagedOutput(), covering(2))
    target.open().commit(NO_SPARK, JOB, Epoch(3), target.stage(3, "c\n"), covering(3))
    assert target.visible() == ["a", "c"]


def test_concurrent_commits_of_one_epoch_agree(target: Target) -> None:
    target.open().commit(NO_SPARK, JOB, Epoch(1), target.stage(1, "a\n"), covering(1))
    attempts = [target.stage(2, "b\n", "c\n", generation=each) for each in range(8)]
    with ThreadPoolExecutor(8) as threads:
        committed = [
            threads.submit(target.open().commit, NO_SPARK, JOB, Epoch(2), each, covering(2))
            for each in (*attempts, *attempts)
        ]
        for each in committed:
            each.result()
    assert target.visible() == ["a", "b", "c"]
    assert target.staged() == []


def test_a_new_job_truncates_a_single_file_and_appends_to_a_folder(target: Target) -> None:
    target.open().commit(
        NO_SPARK, JOB, Epoch(1), target.stage(1, "a long line of the old job\n"), covering(1)
    )
    target.open().commit(
        NO_SPARK, OTHER, Epoch(1), target.stage(1, "new\n", job=OTHER), covering(1)
    )
    target.open().commit(
        NO_SPARK, OTHER, Epoch(2), target.stage(2, "newer\n", job=OTHER), covering(2)
    )
    new = ["new", "newer"]
    assert sorted(target.visible()) == (
        new if target.is_file else ["a long line of the old job", *new]
    )


def test_a_commit_after_a_newer_epoch_appends_nothing_to_a_single_file(
    tmp_path: Path,
) -> None:
    target = Target(tmp_path, "single_file")
    target.open().commit(NO_SPARK, JOB, Epoch(1), target.stage(1, "a\n"), covering(1))
    target.open().commit(NO_SPARK, JOB, Epoch(3), target.stage(3, "c\n"), covering(3))
    target.open().commit(NO_SPARK, JOB, Epoch(2), target.stage(2, "b\n"), covering(2))
    assert target.visible() == ["a", "c"]
    assert target.staged() == []


def test_a_single_file_is_written_by_one_committer_at_a_time(tmp_path: Path) -> None:
    target = Target(tmp_path, "single_file")
    staged = target.stage(1, "a\n")
    with ThreadPoolExecutor(1) as threads:
        with (target.hidden / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            committed = threads.submit(
                target.open().commit, NO_SPARK, JOB, Epoch(1), staged, covering(1)
            )
            with pytest.raises(TimeoutError):
                committed.result(timeout=0.2)
            assert not (tmp_path / "out.json").exists()
        committed.result(timeout=10)
    assert target.visible() == ["a"]


def test_a_new_job_without_output_empties_a_single_file(tmp_path: Path) -> None:
    target = Target(tmp_path, "single_file")
    target.open().commit(NO_SPARK, JOB, Epoch(1), target.stage(1, "old\n"), covering(1))
    target.open().commit(NO_SPARK, OTHER, Epoch(1), StagedOutput(), covering(1))
    assert target.visible() == []


def test_removed_staged_output_is_detected(target: Target) -> None:
    staged = target.stage(1, "a\n", "b\n")
    target.open().discard(staged)
    with pytest.raises(SinkError, match=r"staged output .* of .* is missing"):
        target.open().commit(NO_SPARK, JOB, Epoch(1), staged, covering(1))


def committed(target: Target, *epochs: int) -> None:
    for epoch in epochs:
        target.open().commit(
            NO_SPARK,
            JOB,
            Epoch(epoch),
            target.stage(epoch, f"{epoch}\n", f"and {epoch}\n"),
            covering(epoch),
        )


def lines(*epochs: int) -> list[str]:
    return [line for epoch in epochs for line in (f"{epoch}", f"and {epoch}")]


def test_retracted_output_is_removed_and_later_epochs_append_to_the_rest(target: Target) -> None:
    committed(target, 1, 2, 3, 4)
    for _ in range(2):
        target.open().retract(JOB, Epoch(2), Epoch(4))
        assert target.visible() == lines(1, 2)
    committed(target, 5, 6)
    assert target.visible() == lines(1, 2, 5, 6)


def test_a_completed_retraction_does_not_affect_later_output(target: Target) -> None:
    committed(target, 1, 2, 3)
    target.open().retract(JOB, Epoch(1), Epoch(3))
    committed(target, 4)
    target.open().retract(JOB, Epoch(1), Epoch(3))
    assert target.visible() == lines(1, 4)


def test_retractions_can_go_back_before_earlier_ones(target: Target) -> None:
    committed(target, 1, 2, 3, 4)
    target.open().retract(JOB, Epoch(3), Epoch(4))
    target.open().retract(JOB, Epoch(2), Epoch(4))
    assert target.visible() == lines(1, 2)
    committed(target, 5)
    target.open().retract(JOB, Epoch(1), Epoch(5))
    assert target.visible() == lines(1)
    committed(target, 6)
    assert target.visible() == lines(1, 6)


def test_everything_can_be_retracted(target: Target) -> None:
    committed(target, 1, 2)
    target.open().retract(JOB, Epoch(0), Epoch(2))
    assert target.visible() == []
    committed(target, 3)
    assert target.visible() == lines(3)


def test_everything_is_retracted_after_many_epochs(target: Target) -> None:
    committed(target, *range(1, 160))
    target.open().retract(JOB, Epoch(0), Epoch(159))
    committed(target, 160)
    assert target.visible() == lines(160)


def test_a_zombie_commits_nothing_of_a_retracted_epoch(target: Target) -> None:
    committed(target, 1)
    staged = target.stage(2, "zombie\n")
    target.open().retract(JOB, Epoch(1), Epoch(3))
    assert target.staged() == []
    staged = target.stage(2, "zombie\n", generation=7)
    target.open().commit(NO_SPARK, JOB, Epoch(2), staged, covering(2))
    assert target.visible() == lines(1)
    committed(target, 4)
    target.open().commit(
        NO_SPARK, JOB, Epoch(2), target.stage(2, "zombie\n", generation=8), covering(2)
    )
    assert target.visible() == lines(1, 4)


def test_recall_returns_the_newest_epoch_and_the_input_of_the_requested_ones(
    target: Target,
) -> None:
    assert target.open().recall(JOB, {Epoch(1)}) == SinkMemory()
    committed(target, 1, 2, 3)
    target.open().commit(NO_SPARK, JOB, Epoch(4), StagedOutput(), covering(4))
    recalled = target.open().recall(JOB, {Epoch(2), Epoch(4)})
    assert recalled == SinkMemory(newest=Epoch(3), inputs={Epoch(2): covering(2)})
    assert target.open().recall(OTHER, {Epoch(2)}) == SinkMemory()


@pytest.mark.parametrize("sink", [SingleFileSink, FilesystemSink])
def test_recall_creates_no_folder(
    tmp_path: Path, sink: type[SingleFileSink | FilesystemSink]
) -> None:
    assert opened(sink, tmp_path / "absent" / "out").recall(JOB, ()) == SinkMemory()
    assert list(tmp_path.iterdir()) == []


def test_a_retraction_is_recalled_and_its_epoch_numbers_are_not_reused(target: Target) -> None:
    committed(target, 1, 2, 3)
    target.open().retract(JOB, Epoch(1), Epoch(5))
    recalled = target.open().recall(JOB, ())
    assert recalled == SinkMemory(newest=Epoch(5), retracted=((Epoch(2), Epoch(5)),))


def test_an_epoch_over_other_input_is_refused_and_the_output_is_kept(target: Target) -> None:
    committed(target, 1, 2)
    for epoch in (1, 2):
        staged = target.stage(epoch, "other\n", generation=2)
        with pytest.raises(SinkConflict, match=f"holds epoch {epoch} over other input") as raised:
            target.open().commit(NO_SPARK, JOB, Epoch(epoch), staged, covering(epoch, 1500))
        assert "line 1500" in raised.value.message
        assert "resurgence rollback" in raised.value.hint
    assert target.visible() == lines(1, 2)


def test_a_record_without_input_is_identified_by_its_epoch_alone(target: Target) -> None:
    """Older releases wrote no input."""
    committed(target, 1, 2)
    for record in target.hidden.rglob("epochs/*.json"):
        content = json.loads(record.read_text())
        del content["input"]
        record.write_text(json.dumps(content))
    assert target.open().recall(JOB, {Epoch(2)}) == SinkMemory(newest=Epoch(2))
    staged = target.stage(2, "other\n", generation=2)
    target.open().commit(NO_SPARK, JOB, Epoch(2), staged, covering(2, 1500))
    assert target.visible() == lines(1, 2)


def test_the_record_of_the_newest_epoch_is_never_pruned(target: Target) -> None:
    committed(target, 1, 2, 3)
    target.open().forget(JOB, Epoch(3))
    assert target.open().recall(JOB, {Epoch(2), Epoch(3)}).inputs == {Epoch(3): covering(3)}
    target.open().forget(JOB, Epoch(1000))
    assert target.open().recall(JOB, ()).newest == 3
    committed(target, 1001)
    assert target.visible() == lines(1, 2, 3, 1001)


def test_rows_staged_by_spark_are_hidden_from_readers_until_committed(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    sink = FilesystemSink(FilesystemSinkOptions.read({"path": str(folder)}), SETTINGS)
    first, second = spark.range(0, 10, 1, 2), spark.range(10, 15, 1, 1)
    sink.commit(spark, JOB, Epoch(1), sink.stage(first, JOB, Epoch(1), Generation(1)), covering(1))
    staged = sink.stage(second, JOB, Epoch(2), Generation(1))
    assert (staged.rows, len(staged.files)) == (5, 1)
    assert spark.read.parquet(str(folder)).count() == 10
    assert len(list(folder.glob("**/*.parquet"))) == 2
    sink.commit(spark, JOB, Epoch(2), staged, covering(2))
    assert sorted(row.id for row in spark.read.parquet(str(folder)).collect()) == list(range(15))
    assert sink.stage(spark.range(0), JOB, Epoch(3), Generation(1)) == StagedOutput()
