"""A state directory that is older than the sink is refused, however its epochs are split, until a
rollback.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.cli.commands.rollback import roll_back
from resurgence.connectors.registry import CONNECTORS
from resurgence.errors import ResurgenceError, Retired, SinkConflict
from resurgence.ids import Epoch, JobName
from resurgence.sql import compile_pipeline
from resurgence.state.backend import StateBackend
from resurgence.state.load_plan import LoadPlan
from tests.engine.harness import Job, Leg, read_lines, sink_table, source_table, write_lines

FIRST, GROWN = 100, 200
SINKS = ("filesystem", "single_file")


class Copied:
    """A job whose state dir was copied before its last epochs."""

    def __init__(self, spark: SparkSession, folder: Path, sink: str) -> None:
        self.folder = folder
        self._sink = folder / ("out" if sink == "filesystem" else "out.json")
        self.write(range(FIRST))
        self.job = Job(
            spark,
            folder,
            source_table(folder / "in.json", "id BIGINT", delay=None)
            + sink_table(self._sink, name="out", connector=sink, more=", format = 'json'")
            + "INSERT INTO out SELECT id FROM events",
        )

    def write(self, numbers: Iterable[int]) -> None:
        """The input."""
        write_lines(self.folder / "in.json", [{"id": number} for number in numbers])

    def output(self) -> list[object]:
        files = [self._sink] if self._sink.is_file() else sorted(self._sink.glob("*.json"))
        return [each["id"] for file in files for each in read_lines(file)]

    def advance(self, epochs: int, rows: int) -> None:
        engine = self.job.open(Leg(rows))
        for _ in range(epochs):
            engine.run_epoch()

    def copy(self) -> None:
        shutil.copytree(self.folder / "state", self.folder / "copy")

    def put_back(self) -> None:
        shutil.rmtree(self.folder / "state")
        shutil.copytree(self.folder / "copy", self.folder / "state")

    def all_but_claims(self) -> dict[Path, bytes]:
        """Every file but the records of claimed generations: each start claims one."""
        return {
            each: each.read_bytes()
            for each in self.folder.rglob("*")
            if each.is_file() and each.parent.name not in ("generations", "faults")
        }

    def roll_back(self, to_epoch: int, *, dry_run: bool = False) -> None:
        roll_back(
            StateBackend(self.job.store, JobName(self.job.name)),
            compile_pipeline(self.job.sql, CONNECTORS),
            Epoch(to_epoch),
            dry_run=dry_run,
            accept_duplicates=False,
        )

    def assert_refused(self, match: str, rows: int = 15) -> SinkConflict:
        before = self.all_but_claims()
        with pytest.raises(SinkConflict, match=match) as raised:
            self.job.open(Leg(rows))
        assert self.all_but_claims() == before
        return raised.value


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize(
    ("copied_at", "then_rows"), [pytest.param(0, 15, marks=pytest.mark.long), (3, 7)]
)
def test_a_state_dir_restored_from_a_backup_is_refused_until_it_is_rolled_back(
    spark: SparkSession, tmp_path: Path, sink: str, copied_at: int, then_rows: int
) -> None:
    copied = Copied(spark, tmp_path, sink)
    copied.advance(copied_at, 10)
    copied.copy()
    copied.advance(10 - copied_at, 10)
    assert copied.output() == list(range(FIRST))
    copied.write(range(GROWN))
    copied.put_back()
    error = copied.assert_refused(f"sink 'out' holds epochs {copied_at + 1} to 10", then_rows)
    assert f"`resurgence rollback --to-epoch {copied_at}`" in error.hint
    copied.roll_back(copied_at, dry_run=True)
    copied.assert_refused("holds epochs", then_rows)
    copied.roll_back(copied_at)
    assert copied.output() == list(range(copied_at * 10))
    reports = copied.job.run([Leg(then_rows)])
    assert reports[0].epoch == 11, "the numbers of the sink are spent"
    assert copied.output() == list(range(GROWN))


@pytest.mark.parametrize("sink", SINKS)
def test_the_sinks_newest_epoch_is_known_after_its_older_records_are_gone(
    spark: SparkSession, tmp_path: Path, sink: str
) -> None:
    copied = Copied(spark, tmp_path, sink)
    copied.advance(1, 10)
    copied.copy()
    engine = copied.job.open(Leg(10))
    for _ in range(5):
        engine.run_epoch()
    engine.forget(Epoch(1000))
    copied.put_back()
    copied.assert_refused("holds epochs 2 to 6")


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("point", ["sink.committing", "sink.committed"])
def test_an_epoch_on_record_is_replayed_over_its_input_and_not_refused(
    spark: SparkSession, tmp_path: Path, sink: str, point: str
) -> None:
    """A crash around the commit, then the loss of the newest manifest: a fallback, not a copy."""
    copied = Copied(spark, tmp_path, sink)
    copied.advance(2, 10)
    copied.job.settings = {"faults": f"{point}@3=raise"}
    with pytest.raises(ResurgenceError):
        copied.advance(1, 10)
    copied.job.settings = {}
    (tmp_path / "state/job/epochs/0000000003/manifest-0.json").unlink()
    assert copied.job.open(Leg(15)).epoch == 2
    copied.job.run([Leg(15)])
    assert copied.output() == list(range(FIRST))


def test_a_generation_that_was_fenced_while_it_started_retires(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = Copied(spark, tmp_path, "single_file")
    copied.advance(1, 10)
    plan = StateBackend.prepare_checkpoint_load

    def overtaken(*given: object, **named: object) -> LoadPlan:
        planned = plan(*given, **named)  # type: ignore[arg-type]
        monkeypatch.undo()
        copied.advance(2, 10)
        return planned

    monkeypatch.setattr(StateBackend, "prepare_checkpoint_load", overtaken)
    with pytest.raises(Retired):
        copied.job.open(Leg(10))
    copied.job.run([Leg(15)])
    assert copied.output() == list(range(FIRST))


@pytest.mark.parametrize("sink", SINKS)
def test_an_epoch_over_other_input_is_refused(
    spark: SparkSession, tmp_path: Path, sink: str
) -> None:
    """The state counts as far as the sink, but has cut its epochs elsewhere."""
    copied = Copied(spark, tmp_path, sink)
    copied.advance(2, 10)
    copied.copy()
    copied.advance(2, 10)
    copied.put_back()
    hidden = [each for each in tmp_path.iterdir() if each.name.startswith((".out", "out"))]
    for each in hidden:
        each.rename(each.with_name(f"{each.name}.aside"))
    copied.advance(2, 15)
    for each in tmp_path.iterdir():
        if each.name in [path.name for path in hidden]:
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    for each in hidden:
        each.with_name(f"{each.name}.aside").rename(each)
    error = copied.assert_refused("holds epoch 4 over other input than the state")
    assert "line 30" in error.message
    assert "line 35" in error.message
    copied.roll_back(2)
    copied.job.run([Leg(15)])
    assert copied.output() == list(range(FIRST))


@pytest.mark.parametrize("sink", SINKS)
def test_a_state_dir_from_before_a_rollback_is_refused(
    spark: SparkSession, tmp_path: Path, sink: str
) -> None:
    """The sink has retracted epochs that are visible according to the backup."""
    copied = Copied(spark, tmp_path, sink)
    copied.advance(4, 10)
    copied.copy()
    copied.roll_back(2)
    copied.put_back()
    error = copied.assert_refused("has retracted epochs 3 to 4")
    assert "an epoch N before them" in error.hint
    copied.roll_back(2)
    copied.job.run([Leg(15)])
    assert copied.output() == list(range(FIRST))
