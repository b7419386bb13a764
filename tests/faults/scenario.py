"""One windowed pipeline, written once, to be run under every fault."""

from __future__ import annotations

import json
import random
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path

from pyspark.sql import Row, SparkSession

from resurgence.config import settings_from
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.epochs.engine import Engine
from resurgence.engine.epochs.in_process import open_engine
from resurgence.ids import JobName
from resurgence.sql import compile_pipeline
from resurgence.state.backend import StateBackend
from resurgence.storage.object_store import ObjectStore

ROWS = 400
EPOCH_ROWS = 100
JOB = JobName("rides")


@dataclass
class Scenario:
    """Rides counted by the hour, into a folder of Parquet and a file of JSON lines."""

    spark: SparkSession
    folder: Path
    place: str
    """The folder or URL of the state and of the sink `hourly`."""
    width: str = "10 minutes"

    @property
    def rides(self) -> Path:
        return self.folder / "rides.json"

    @property
    def sql(self) -> str:
        return f"""
            CREATE TABLE rides (at TIMESTAMP NOT NULL, driver BIGINT, kind TEXT,
                WATERMARK FOR at AS at - INTERVAL '30 seconds')
            WITH (connector = 'single_file', path = '{self.rides}', format = 'json', type = 'source');
            CREATE TABLE hourly (hour TIMESTAMP, kind TEXT, rides BIGINT, mean DOUBLE)
            WITH (connector = 'filesystem', path = '{self.place}/hourly', format = 'parquet');
            CREATE TABLE long_rides (at TIMESTAMP, driver BIGINT)
            WITH (connector = 'single_file', path = '{self.folder}/drivers.json', type = 'sink');
            INSERT INTO hourly SELECT window.start, kind, n, mean FROM (
                SELECT tumble(INTERVAL '{self.width}') AS window, kind, count(*) AS n, avg(driver) AS mean
                FROM rides GROUP BY window, kind);
            INSERT INTO long_rides SELECT at, driver FROM rides WHERE driver > 400"""

    def write_rides(self) -> None:
        rng = random.Random(11)
        at = datetime(2024, 3, 1)
        lines = []
        for _ in range(ROWS):
            at += timedelta(seconds=rng.randint(0, 20))
            early = at - timedelta(seconds=rng.randint(0, 25))
            ride = {
                "at": early.isoformat(),
                "driver": rng.randint(1, 500),
                "kind": rng.choice("abc"),
            }
            lines.append(json.dumps(ride))
        self.rides.write_text("\n".join(lines) + "\n")

    def store(self) -> ObjectStore:
        return ObjectStore(f"{self.place}/state")

    def backend(self) -> StateBackend:
        return StateBackend(self.store(), JOB)

    def engine(
        self,
        faults: str = "",
        *,
        store: ObjectStore | None = None,
        parallelism: int = 2,
        keep: int = 10,
        compact_files: int = 8,
        epoch_rows: int = EPOCH_ROWS,
        damaged: frozenset[str] = frozenset(),
    ) -> Engine:
        settings = settings_from(
            {
                "pipeline.epoch_rows": str(epoch_rows),
                "pipeline.parallelism": str(parallelism),
                "checkpoint.keep": str(keep),
                "checkpoint.compact_files": str(compact_files),
                "faults": faults,
            }
        )
        graph = compile_pipeline(self.sql, CONNECTORS)
        return open_engine(self.spark, graph, store or self.store(), JOB, settings, damaged=damaged)

    def finish(self, engine: Engine | None = None) -> None:
        """Run to the end of the input."""
        engine = engine or self.engine()
        while not engine.finished:
            engine.run_epoch()

    def hourly(self) -> list[Row]:
        """What is visible in the sink, read without it."""
        store = ObjectStore(f"{self.place}/hourly")
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            for each in store.list(""):
                if not each.path.startswith("."):
                    (Path(scratch) / each.path).write_bytes(store.read(each.path))
            return sorted(self.spark.read.parquet(scratch).collect())

    def stored(self, pattern: str) -> list[str]:
        """The objects of the state that fit a pattern."""
        paths = (each.path for each in self.store().list(str(JOB)))
        return [each for each in paths if fnmatchcase(each, f"{JOB}/{pattern}")]

    def drivers(self) -> list[tuple[str, int]]:
        lines = (self.folder / "drivers.json").read_text().splitlines()
        return sorted((row["at"], row["driver"]) for row in map(json.loads, lines))

    def batch_hourly(self) -> list[Row]:
        rides = self.spark.read.schema("at TIMESTAMP, driver BIGINT, kind STRING").json(
            str(self.rides)
        )
        rides.createOrReplaceTempView("rides")
        return sorted(
            self.spark.sql(
                f"""SELECT window.start AS hour, kind, count(*) AS rides, avg(driver) AS mean
                    FROM rides GROUP BY window(at, '{self.width}'), kind"""
            ).collect()
        )

    def batch_drivers(self) -> list[tuple[str, int]]:
        rides = [json.loads(line) for line in self.rides.read_text().splitlines()]
        return sorted((each["at"], each["driver"]) for each in rides if each["driver"] > 400)

    def assert_exactly_once(self) -> None:
        """The output is the batch answer, row for row."""
        assert self.hourly() == self.batch_hourly()
        assert self.drivers() == self.batch_drivers()


def made_scenario(spark: SparkSession, folder: Path, place: str) -> Scenario:
    """With its input written."""
    made = Scenario(spark, folder, place)
    made.write_rides()
    return made
