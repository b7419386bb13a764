"""Jobs on real Spark, split into epochs as a test requires, and the batch answer to compare them
with.

A job here is SQL, a folder and a store. It is run in legs: each leg opens a new generation with its
own parallelism and epoch size, so that the input can be split into epochs in any way. The oracle is
Spark's own batch SQL over the same file.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from resurgence.clock import Clock
from resurgence.config import settings_from
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.epochs.engine import Engine, EpochReport
from resurgence.engine.epochs.in_process import open_engine
from resurgence.engine.functions.user_functions import register_functions
from resurgence.engine.tables.file_cache import FOLDER
from resurgence.ids import JobName
from resurgence.sql import compile_pipeline
from resurgence.state.records import StateFile
from resurgence.storage.object_store import ObjectStore
from resurgence.udf import UserFunction

WHOLE = 1_000_000
"""More rows than any input here has."""


@dataclass(frozen=True)
class Leg:
    """So many rows an epoch, with so many subtasks, for so many epochs or to the end."""

    rows: int = WHOLE
    parallelism: int = 2
    epochs: int = WHOLE


@dataclass
class Job:
    """A pipeline with its store and the reports of all its epochs."""

    spark: SparkSession
    folder: Path
    sql: str
    functions: Mapping[str, UserFunction] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    clock: Clock | None = None
    name: str = "job"
    place: str = ""
    """The folder or URL of the state; by default in `folder`."""
    reports: list[EpochReport] = field(default_factory=list)

    @property
    def store(self) -> ObjectStore:
        return ObjectStore(self.place or f"file://{self.folder}/state")

    def open(self, leg: Leg | None = None, damaged: frozenset[str] = frozenset()) -> Engine:
        """A new generation of the job."""
        leg = leg or Leg()
        register_functions(self.spark, self.functions)
        kinds = {name: each.kind for name, each in self.functions.items()}
        settings = {
            "pipeline.parallelism": str(leg.parallelism),
            "pipeline.epoch_rows": str(leg.rows),
            **self.settings,
        }
        return open_engine(
            self.spark,
            compile_pipeline(self.sql, CONNECTORS, kinds),
            self.store,
            JobName(self.name),
            settings_from(settings),
            clock=self.clock,
            damaged=damaged,
        )

    def run(
        self,
        legs: Iterable[Leg] = (),
        after_epoch: Callable[[Engine], None] = lambda _engine: None,
    ) -> list[EpochReport]:
        """Run the legs, then what is left of the input; every epoch's report."""
        for leg in (*legs, Leg()):
            engine = self.open(leg)
            for _ in range(leg.epochs):
                if engine.finished:
                    return self.reports
                report = engine.run_epoch()
                assert report is not None
                self.reports.append(report)
                after_epoch(engine)
        raise AssertionError("the input has no end")


@dataclass
class SetClock:
    """Does not advance until it is set."""

    at: datetime

    def now(self) -> datetime:
        return self.at


@dataclass
class TickingClock:
    """Advances by a second whenever it is asked, so that no source waits before it looks again."""

    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def now(self) -> datetime:
        self.at += timedelta(seconds=1)
        return self.at


def query_job(
    spark: SparkSession,
    folder: Path,
    functions: Mapping[str, UserFunction],
    query: str,
    *,
    columns: str,
    rows: Iterable[Mapping[str, object]],
) -> Job:
    """A job that reads rows as the table `events`, and writes what a query gives to `out.json`."""
    sql = source_table(write_lines(folder / "events.json", rows), columns)
    sql += sink_table(folder / "out.json", name="out", connector="single_file")
    return Job(spark, folder, f"{sql}INSERT INTO out {query}", functions)


def random_legs(seed: int, rows: int, epochs: int, parallelism: Sequence[int]) -> list[Leg]:
    """A random cut of so many rows into so many epochs, each with the next parallelism."""
    rng = random.Random(seed)
    cuts = [0, *sorted(rng.sample(range(1, rows), epochs - 1)), rows]
    return [
        Leg(end - start, parallelism[number % len(parallelism)], epochs=1)
        for number, (start, end) in enumerate(itertools.pairwise(cuts))
    ]


def write_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    """Rows as a file of JSON lines."""
    path.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    return path


def read_lines(path: Path) -> list[dict[str, object]]:
    """A file of JSON lines as rows."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def source_table(
    path: Path,
    columns: str,
    *,
    name: str = "events",
    delay: str | None = "5 seconds",
    more: str = "",
) -> str:
    """CREATE TABLE for a source file; event time is the column `at`."""
    watermark = f", WATERMARK FOR at AS at - INTERVAL '{delay}'" if delay else ""
    return (
        f"CREATE TABLE {name} ({columns}{watermark})"
        f" WITH (connector = 'single_file', path = '{path}', type = 'source'{more});\n"
    )


def sink_table(
    path: Path, *, name: str, columns: str = "", connector: str = "filesystem", more: str = ""
) -> str:
    """CREATE TABLE for a sink."""
    return (
        f"CREATE TABLE {name} {columns}"
        f" WITH (connector = '{connector}', path = '{path}', type = 'sink'{more});\n"
    )


def batch(spark: SparkSession, path: Path, columns: str, query: str) -> DataFrame:
    """Spark's own answer: a batch query over the same file, as the view `events`."""
    schema = columns.replace("TEXT", "STRING").replace(" NOT NULL", "")
    spark.read.schema(schema).json(str(path)).createOrReplaceTempView("events")
    return spark.sql(query)


def sorted_rows(rows: DataFrame) -> list[str]:
    """Rows as texts that are equal only if all values and types are."""
    return sorted(repr(tuple(each)) for each in rows.collect())


def types(rows: DataFrame) -> list[tuple[str, str]]:
    """The names and types of the columns."""
    return [(each.name, each.dataType.simpleString()) for each in rows.schema]


def forget_cached_state(spark: SparkSession) -> None:
    """Remove the rows of state files from the local disk, as a crash does."""
    folder = spark.sparkContext.getConf().get("spark.local.dir")
    assert folder is not None
    found = [*Path(folder).rglob(FOLDER)]
    for each in found:
        shutil.rmtree(each)


def state_files(engine: Engine) -> list[StateFile]:
    """The live files of all state tables."""
    return [file for live in engine._pipeline.live_files().values() for file in live.files]


def timestamp(at: datetime) -> str:
    """An instant as the JSON of the input has it."""
    return at.replace(tzinfo=None).isoformat()
