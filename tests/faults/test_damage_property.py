"""Random damage to the newest checkpoints: the job recovers and returns the batch answer.

One base is made by Spark and copied for every example. Its epochs are sealed by a generation each:
the first window closes in epoch 2, the second one is open from then on, so that a state file of
epoch n is named by every checkpoint from n to the newest. In one base the newest epoch is
committed, in the other its commit is pending.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from resurgence.clock import SystemClock
from resurgence.config import settings_from
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.epochs.engine import Engine
from resurgence.engine.epochs.in_process import open_engine
from resurgence.engine.spark.errors import translate
from resurgence.errors import (
    DamagedState,
    IdentityMissing,
    InjectedFault,
    NewerFormat,
    NoValidCheckpoint,
)
from resurgence.graph.watermarks import END_OF_TIME
from resurgence.ids import Epoch, JobName
from resurgence.sql import compile_pipeline
from resurgence.state.backend import StateBackend
from resurgence.state.load_plan import LoadPlan
from resurgence.state.records import (
    FORMAT_VERSION,
    CommittedRecord,
    GenerationRecord,
    InputRange,
    Manifest,
    OperatorCheckpointMetadata,
    Record,
    decode,
)
from resurgence.storage.object_store import ObjectStore
from resurgence.storage.parquet import ParquetEncoder, digest_of, read_bins

ROOT = Path(__file__).parents[2]
JOB = JobName("numbers")
ROWS, EPOCH_ROWS = 450, 100
NEWEST = 4
"""Four epochs are sealed; the fifth is the last."""
START = 1_704_067_350
"""Seconds since 1970: 150 before the end of a window."""
BASES = ("committed", "pending")


# ---------------------------------------------------------------- the job


@dataclass(frozen=True)
class Numbers:
    """Numbers, one a second: every third of them, and totals of 250 seconds, by key."""

    folder: Path
    spark: SparkSession | None = None

    @property
    def sql(self) -> str:
        return f"""
            CREATE TABLE numbers WITH (connector = 'impulse', message_count = '{ROWS}',
                event_time_interval = '1 second', start_time = '2024-01-01T00:02:30');
            CREATE TABLE thirds (counter BIGINT)
            WITH (connector = 'filesystem', path = '{self.folder}/thirds', format = 'json');
            CREATE TABLE totals (start TIMESTAMP, k BIGINT, n BIGINT, total BIGINT)
            WITH (connector = 'single_file', path = '{self.folder}/totals.json', type = 'sink');
            INSERT INTO thirds SELECT counter FROM numbers WHERE counter % 3 = 0;
            INSERT INTO totals SELECT window.start, k, n, total FROM (
                SELECT tumble(INTERVAL '250 seconds') AS window, counter % 7 AS k,
                       count(*) AS n, sum(counter) AS total
                FROM numbers GROUP BY window, k)"""

    @property
    def state(self) -> Path:
        return self.folder / "state" / JOB

    @property
    def store(self) -> ObjectStore:
        return ObjectStore(f"{self.folder}/state")

    def engine(self, faults: str = "", damaged: frozenset[str] = frozenset()) -> Engine:
        """A new generation."""
        assert self.spark is not None
        wanted = {
            "pipeline.epoch_rows": str(EPOCH_ROWS),
            "pipeline.parallelism": "2",
            "faults": faults,
        }
        graph = compile_pipeline(self.sql, CONNECTORS)
        return open_engine(
            self.spark, graph, self.store, JOB, settings_from(wanted), damaged=damaged
        )

    def plan(self, damaged: frozenset[str] = frozenset()) -> LoadPlan:
        """The plan that a new generation would go by; no Spark needed."""
        backend = StateBackend(self.store, JOB)
        claim = backend.claim_generation(SystemClock().now())
        return backend.prepare_checkpoint_load(claim, 2, damaged)

    def recover(self) -> None:
        """Run to the end as the controller does: a file that proves unreadable is left out of the
        next plan.
        """
        damaged: frozenset[str] = frozenset()
        while True:
            try:
                engine = self.engine(damaged=damaged)
                while not engine.finished:
                    engine.run_epoch()
                return
            except Exception as raised:
                error = translate(raised)
                if not isinstance(error, DamagedState) or error.path in damaged:
                    raise
                damaged |= {error.path}

    def output(self) -> list[str]:
        """All rows of both sinks."""
        files = [*self.folder.glob("thirds/*.json"), self.folder / "totals.json"]
        return sorted(line for each in files for line in each.read_text().splitlines())

    def content(self) -> dict[Path, bytes]:
        """All that is stored, relative to the job's folder."""
        return {
            each.relative_to(self.state): each.read_bytes()
            for each in self.state.rglob("*")
            if each.is_file()
        }


def batch_answer(spark: SparkSession) -> list[str]:
    """Spark's own answer, as the lines that the sinks write."""
    spark.range(ROWS).selectExpr(
        "id AS counter", f"timestamp_seconds({START} + id) AS at"
    ).createOrReplaceTempView("numbers")
    thirds = spark.sql("SELECT counter FROM numbers WHERE counter % 3 = 0").collect()
    totals = spark.sql(
        """SELECT date_format(window(at, '250 seconds').start, "yyyy-MM-dd'T'HH:mm:ss") AS start,
                  counter % 7 AS k, count(*) AS n, sum(counter) AS total
           FROM numbers GROUP BY 1, 2"""
    ).collect()
    return sorted(json.dumps(row.asDict(), separators=(",", ":")) for row in (*thirds, *totals))


@dataclass(frozen=True)
class Bases:
    """What every example begins with."""

    folder: Path
    spark: SparkSession
    expected: list[str]
    inputs: dict[Epoch, dict[str, InputRange]]
    """What each sealed epoch read."""

    @contextmanager
    def copy(self, name: str) -> Iterator[Numbers]:
        """A base of one's own. It lies where the base was made."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            shutil.copytree(self.folder / name, scratch, dirs_exist_ok=True)
            yield Numbers(Path(scratch), self.spark)


@pytest.fixture(scope="module")
def bases(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Bases:
    folder = tmp_path_factory.mktemp("bases")
    job = Numbers(folder / "pending", spark)
    for _ in range(NEWEST - 1):
        job.engine().run_epoch()
    with pytest.raises(InjectedFault):
        job.engine(f"sink.committing@{NEWEST}=raise").run_epoch()
    shutil.copytree(job.folder, folder / "committed")
    replace(job, folder=folder / "committed").engine()
    inputs = {}
    for path in sorted(job.state.glob("epochs/*/manifest-0.json")):
        manifest = decode(Manifest, path.read_bytes(), str(path))
        inputs[manifest.epoch] = {str(key): each for key, each in manifest.inputs.items()}
    assert list(inputs) == [1, 2, 3, 4]
    return Bases(folder, spark, batch_answer(spark), inputs)


# ---------------------------------------------------------------- damage

KINDS: dict[str, type[Record] | None] = {
    "generation": GenerationRecord,
    "source": OperatorCheckpointMetadata,
    "window": OperatorCheckpointMetadata,
    "sink": OperatorCheckpointMetadata,
    "manifest": Manifest,
    "committed": CommittedRecord,
    "state file": None,
}
PATTERNS = {
    "source": "epochs/{epoch:010}/operator-source-*.json",
    "window": "epochs/{epoch:010}/operator-window-*.json",
    "sink": "epochs/{epoch:010}/operator-sink-thirds-*.json",
    "manifest": "epochs/{epoch:010}/manifest-0.json",
    "committed": "epochs/{epoch:010}/committed.json",
    "state file": "tables/*/partials/{epoch}-*.parquet",
}


def find(job: Numbers, kind: str, back: int) -> Path | None:
    """An object of the newest checkpoint but `back`, or the newest generation but `back`."""
    if kind == "generation":
        return sorted(job.state.glob("generations/*.json"))[-1 - back]
    found = sorted(job.state.glob(PATTERNS[kind].format(epoch=NEWEST - back)))
    return found[0] if found else None


def remove(path: Path, kind: type[Record] | None, place: float) -> None:
    path.unlink()


def empty(path: Path, kind: type[Record] | None, place: float) -> None:
    path.write_bytes(b"")


def truncate(path: Path, kind: type[Record] | None, place: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(place * len(data))])


def flip(path: Path, kind: type[Record] | None, place: float) -> None:
    """One bit, anywhere in a record, or among the keys of a state file."""
    data = bytearray(path.read_bytes())
    position = int(place * len(data))
    if kind is None:
        keys = pq.ParquetFile(path).metadata.row_group(0).column(1)
        # The last bytes of the last page: its header, of which not all is checked, comes first.
        position = keys.data_page_offset + keys.total_compressed_size - 1 - int(place * 16)
    data[position] ^= 1 << int(place * len(data) * 8) % 8
    path.write_bytes(bytes(data))


def make_newer(path: Path, kind: type[Record] | None, place: float) -> None:
    """The next format, with a checksum that fits; a state file only says so."""
    if kind is None:
        path.write_bytes(path.read_bytes().replace(b"PAR1", b"PAR9"))
        return
    record = decode(kind, path.read_bytes(), str(path))
    path.write_bytes(record.model_copy(update={"version": FORMAT_VERSION + 1}).encode())


def make_foreign(path: Path, kind: type[Record] | None, place: float) -> None:
    """The same record of another job; for a state file, a file of other rows and another size."""
    if kind is None:
        rows = pq.read_table(path)
        pq.write_table(rows.slice(1), path, write_page_checksum=True)
        return
    record = decode(kind, path.read_bytes(), str(path))
    path.write_bytes(record.model_copy(update={"job": "stranger"}).encode())


Damage = Callable[[Path, type[Record] | None, float], None]
DAMAGES: dict[str, Damage] = {
    "missing": remove,
    "empty": empty,
    "truncated": truncate,
    "flipped": flip,
    "newer": make_newer,
    "foreign": make_foreign,
}
ONLY_READING_SHOWS = ("flipped", "newer")
"""Of a state file: its size is right."""


# ---------------------------------------------------------------- the plan, without Spark


def newest_intact(kind: str, back: int) -> int:
    """Which checkpoint can be used after one object of the newest but `back` was damaged."""
    if kind == "state file":
        # Checkpoint 2 has closed the window of the file of epoch 1.
        return NEWEST - back - 1 if back < NEWEST - 1 else NEWEST
    return NEWEST - 1 if back == 0 and kind not in ("generation", "committed") else NEWEST


ONE_OBJECT = [
    pytest.param(base, kind, damage, back, id=f"{kind}-{damage}-{back}-{base}".replace(" ", "_"))
    for kind in KINDS
    for damage in DAMAGES
    for back in (range(NEWEST) if kind == "state file" else (0, 1))
    for base in BASES
    if (kind, back, base) != ("committed", 0, "pending")
]
PLACES = {"truncated": (0.1, 0.999), "flipped": (0.01, 0.3, 0.62, 0.98)}
"""Where else damage has a place, as parts of the object's length."""


@pytest.mark.parametrize(("base", "kind", "damage", "back"), ONE_OBJECT)
def test_any_one_damaged_object_leaves_a_plan_over_the_recorded_input(
    bases: Bases, base: str, kind: str, damage: str, back: int
) -> None:
    for place in PLACES.get(damage, (0.5,)):
        check_plan(bases, base, kind, damage, back, place)


def check_plan(bases: Bases, base: str, kind: str, damage: str, back: int, place: float) -> None:
    with bases.copy(base) as job:
        path = find(job, kind, back)
        assert path is not None
        DAMAGES[damage](path, KINDS[kind], place)
        before = job.content()
        if (kind, damage, back) == ("generation", "newer", 0):
            with pytest.raises(NewerFormat):
                job.plan()
            assert job.content() == before
            return
        unreadable: frozenset[str] = frozenset()
        if kind == "state file" and damage in ONLY_READING_SHOWS:
            unreadable = frozenset({f"{JOB}/{path.relative_to(job.state)}"})
        plan = job.plan(unreadable)
        committed = {int(each.parent.name) for each in job.state.glob("epochs/*/committed.json")}
        assert plan.epoch == newest_intact(kind, back)
        assert plan.commit_pending == (plan.epoch == NEWEST and NEWEST not in committed)
        assert {epoch: (each.inputs, each.committed) for epoch, each in plan.recorded.items()} == {
            epoch: (inputs, epoch in committed)
            for epoch, inputs in bases.inputs.items()
            if epoch > plan.epoch
        }
        assert before.items() <= job.content().items()
        assert job.plan(unreadable).epoch == plan.epoch


# ---------------------------------------------------------------- the job, to its end


@dataclass(frozen=True)
class Example:
    """One kind of damage to one kind of object, in each of the newest checkpoints."""

    kind: str
    damage: str
    checkpoints: int
    base: str

    def inflict(self, job: Numbers) -> None:
        backs = range(self.checkpoints)
        if self.kind == "state file":
            # One file, which all these checkpoints name.
            backs = range(self.checkpoints - 1, self.checkpoints)
        found = [path for back in backs if (path := find(job, self.kind, back))]
        assert found
        for path in found:
            DAMAGES[self.damage](path, KINDS[self.kind], 0.7)

    def __str__(self) -> str:
        parts = (self.kind.replace(" ", "_"), self.damage, str(self.checkpoints), self.base)
        return "-".join(parts)


def examples() -> Iterator[object]:
    """Every kind of object with every damage, one to three checkpoints deep, on either base. A
    part of them runs always: each kind with two damages, each damage with at least two kinds.
    """
    for row, kind in enumerate(KINDS):
        for column, damage in enumerate(DAMAGES):
            for checkpoints in (1, 2, 3):
                base = BASES[(row + column + checkpoints) % 2]
                if (kind, checkpoints, base) == ("committed", 1, "pending"):
                    base = "committed"
                is_short = (column - row) % 3 == 0 and checkpoints == 1 + (row + column // 3) % 3
                yield pytest.param(
                    Example(kind, damage, checkpoints, base),
                    marks=() if is_short else pytest.mark.long,
                    id=str(Example(kind, damage, checkpoints, base)),
                )


def assert_each_row_counted_once(job: Numbers) -> None:
    """The totals of the last checkpoint, whatever was replayed on the way to it."""
    path = max(job.state.glob("epochs/*/manifest-*.json"))
    totals = decode(Manifest, path.read_bytes(), str(path)).totals
    assert totals.since == 1
    reported = {name: sum(counts.values()) for name, counts in totals.counts.model_dump().items()}
    assert reported == {
        "rows_in": ROWS,
        "bad_rows": 0,
        "dead_rows": 0,
        "skipped_rows": 0,
        "late_rows": 0,
        "partly_late_rows": 0,
        "kept_rows": ROWS,
        "rows_out": len(job.output()),
    }


@pytest.mark.parametrize("example", list(examples()))
def test_a_job_with_damaged_checkpoints_recovers_exactly_once(
    bases: Bases, example: Example
) -> None:
    with bases.copy(example.base) as job:
        example.inflict(job)
        before = job.content()
        if (example.kind, example.damage) == ("generation", "newer"):
            with pytest.raises(NewerFormat):
                job.recover()
            assert job.content() == before
            return
        job.recover()
        assert job.output() == bases.expected
        assert before.items() <= job.content().items()
        assert_each_row_counted_once(job)


# ---------------------------------------------------------------- damage beyond repair


def test_a_state_file_that_every_checkpoint_names_is_an_error_and_deletes_nothing(
    bases: Bases,
) -> None:
    with bases.copy("pending") as job:
        for epoch in (1, 2):
            (path,) = job.state.glob(f"tables/*/partials/{epoch}-*.parquet")
            path.write_bytes(path.read_bytes()[:-1])
        before = job.content()
        with pytest.raises(NoValidCheckpoint) as caught:
            job.recover()
        assert [line.split(":")[0].strip() for line in caught.value.message.splitlines()[1:]] == [
            f"epoch {epoch}" for epoch in (4, 3, 2, 1)
        ]
        assert "Nothing was deleted" in caught.value.hint
        added = job.content().keys() - before.keys()
        assert before.items() <= job.content().items()
        assert {each.parts[0] for each in added} == {"generations"}


@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "flipped"])
def test_an_identity_lost_in_every_generation_is_an_error_and_changes_nothing(
    bases: Bases, damage: str
) -> None:
    with bases.copy("committed") as job:
        for path in job.state.glob("generations/*.json"):
            DAMAGES[damage](path, GenerationRecord, 0.5)
        before = job.content()
        with pytest.raises(IdentityMissing):
            job.recover()
        assert job.content() == before


# ---------------------------------------------------------------- damage that looks whole


def test_the_number_of_a_lost_generation_is_not_reused_while_its_objects_exist(
    bases: Bases,
) -> None:
    """It had begun the next epoch; then its record was lost, and its number is claimed again."""
    with bases.copy("committed") as job:
        with pytest.raises(InjectedFault):
            job.engine(f"metadata.written@{NEWEST + 1}=raise").run_epoch()
        Example("generation", "missing", 1, "committed").inflict(job)
        job.recover()
        assert job.output() == bases.expected


def test_a_state_file_of_another_job_is_never_read_as_ours(bases: Bases) -> None:
    """Same columns, same size, every checksum right; only the rows are others."""
    with bases.copy("committed") as job:
        (path,) = job.state.glob(f"tables/*/partials/{NEWEST}-*.parquet")
        size, rows = path.stat().st_size, pq.read_table(path)
        counts = pc.add(rows.column("a0"), 1)
        foreign = rows.set_column(
            rows.schema.get_field_index("a0"), rows.schema.field("a0"), counts
        )
        encoder = ParquetEncoder(("bin",))
        for batch in foreign.to_batches():
            encoder.add(batch)
        encoded = encoder.finish()
        assert encoded is not None
        assert len(encoded.data) == size
        path.write_bytes(encoded.data)
        job.recover()
        assert job.output() == bases.expected


def test_any_flipped_bit_of_a_state_file_is_detected(bases: Bases) -> None:
    (path,) = (bases.folder / "pending").glob(f"state/{JOB}/tables/*/partials/{NEWEST}-*.parquet")
    data = path.read_bytes()

    class Stored(ObjectStore):
        def __init__(self) -> None:
            self.data = data

        def read(self, path: str) -> bytes:
            return self.data

    store = Stored()

    def rows() -> int:
        found = read_bins(store, "state file", len(data), digest_of(data), "bin", 0, END_OF_TIME)
        return sum(each.num_rows for each in found)

    assert rows() > 0
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            store.data = bytes(flipped)
            with pytest.raises(DamagedState, match="does not match its digest"):
                rows()
