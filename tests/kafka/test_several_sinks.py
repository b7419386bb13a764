"""One job into Kafka, Iceberg and Postgres: whatever is between two commits, all tables get each
epoch once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.epochs.engine import Engine
from resurgence.engine.spark.errors import translate
from resurgence.errors import ErrorDomain, InjectedFault
from resurgence.faults import FaultPoint
from resurgence.graph.explain import explain_graph
from resurgence.sql import compile_pipeline
from tests.engine.harness import Job, Leg
from tests.killed_run import run_killed
from tests.servers.kafka import KafkaBroker

POINTS = (
    "sink.staged",
    "manifest.published",
    "sink.between",
    *(f"sink.between:{place}" for place in range(2, 6)),
    "sink.committed",
)
"""Between any two of six commits. Each of the systems alone is killed at all points in long tests."""
FILES = len(POINTS) + 1
FILE_ROWS = 600
ROWS = FILES * FILE_ROWS
FOLDER = """
CREATE TABLE numbers (counter BIGINT NOT NULL) WITH (
  connector = 'filesystem', type = 'source', path = 'numbers', format = 'json',
  'source.epoch_files' = '1', 'source.stop_at' = 'latest');
"""
IMPULSE = """
CREATE TABLE numbers WITH (connector = 'impulse', event_rate = '1000000', message_count = '30');
"""
MORE_SINKS = """
CREATE TABLE copied WITH (connector = 'delta', type = 'sink', path = 'copied');
CREATE TABLE summed (kind BIGINT PRIMARY KEY, n BIGINT) WITH (
  connector = 'delta', type = 'sink', path = 'summed');
CREATE TABLE rolled WITH (connector = 'filesystem', path = 'rolled', format = 'json', type = 'sink',
  'rolling_policy.file_size' = '20kB');
INSERT INTO copied SELECT counter FROM numbers;
INSERT INTO summed SELECT counter % 5, count(*) FROM numbers GROUP BY counter % 5;
INSERT INTO rolled SELECT counter FROM numbers;
"""


@dataclass(frozen=True)
class Systems:
    """The three systems, and a pipeline that writes to all of them."""

    broker: KafkaBroker
    topic: str
    url: str
    folder: Path

    def sql(self, numbers: str) -> str:
        """Of a table of `numbers`."""
        return f"""
        {numbers}
        CREATE TABLE published WITH (
          connector = 'kafka', type = 'sink', bootstrap_servers = '{self.broker.bootstrap}',
          topic = '{self.topic}', 'sink.key_field' = 'counter',
          'sink.marker_topic' = '{self.topic}-markers');
        CREATE TABLE kept WITH (
          connector = 'iceberg', type = 'sink', 'catalog.type' = 'sql',
          'catalog.sql.uri' = '{self._catalog}', 'catalog.warehouse' = 'file://{self.folder}/warehouse',
          namespace = 'db', table_name = 'kept');
        CREATE TABLE counted (kind BIGINT PRIMARY KEY, n BIGINT, total BIGINT) WITH (
          connector = 'postgres', type = 'sink', dsn = '{self.url}', table = 'counted');
        INSERT INTO published SELECT counter FROM numbers;
        INSERT INTO kept SELECT counter FROM numbers;
        INSERT INTO counted SELECT counter % 7, count(*), sum(counter) FROM numbers GROUP BY counter % 7;
        """

    @property
    def _catalog(self) -> str:
        return f"sqlite:///{self.folder}/catalog.db"

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def published(self) -> list[int]:
        records = self.broker.read(self.topic)
        return sorted(json.loads(each.value or b"")["counter"] for each in records)

    def kept(self) -> list[int]:
        catalog = SqlCatalog("default", uri=self._catalog)
        if not catalog.table_exists("db.kept"):
            return []
        rows = catalog.load_table("db.kept").scan().to_arrow()
        return sorted(rows.column("counter").to_pylist())

    def counted(self) -> int:
        """The number of rows that the totals cover."""
        with psycopg.connect(self.url) as connection:
            rows = connection.execute("SELECT kind, n, total FROM counted").fetchall()
        covered: int = sum(n for _, n, _ in rows)
        expected: dict[int, list[int]] = {}
        for counter in range(covered):
            expected.setdefault(counter % 7, []).append(counter)
        assert sorted(rows) == [(kind, len(e), sum(e)) for kind, e in sorted(expected.items())]
        return covered

    def held(self) -> tuple[int, int, int]:
        """The number of rows in each, all of them from the first on and once."""
        published, kept = self.published(), self.kept()
        assert published == [*range(len(published))]
        assert kept == [*range(len(kept))]
        return len(published), len(kept), self.counted()


@pytest.fixture
def systems(kafka_broker: KafkaBroker, postgres_url: str, tmp_path: Path) -> Systems:
    topic = kafka_broker.create_topic(partitions=2)
    made = Systems(kafka_broker, topic, postgres_url, tmp_path)
    made.execute("CREATE TABLE counted (kind bigint PRIMARY KEY, n bigint, total bigint)")
    return made


@pytest.mark.timeout(600)
def test_a_killed_run_writes_each_row_once_to_all_systems(systems: Systems) -> None:
    """To Delta tables and rolled files, too; from a folder of files."""
    files = systems.folder / "numbers"
    files.mkdir()
    for place in range(FILES):
        rows = range(place * FILE_ROWS, (place + 1) * FILE_ROWS)
        lines = "".join(json.dumps({"counter": counter}) + "\n" for counter in rows)
        (files / f"{place}.json").write_text(lines)
    run_killed(systems.folder, systems.sql(FOLDER) + MORE_SINKS, points=POINTS)
    assert systems.held() == (ROWS, ROWS, ROWS)
    copied = DeltaTable(systems.folder / "copied").to_pyarrow_table()
    assert sorted(copied.column("counter").to_pylist()) == [*range(ROWS)]
    summed = DeltaTable(systems.folder / "summed").to_pyarrow_table().to_pylist()
    assert sorted((each["kind"], each["n"]) for each in summed) == [
        (kind, len(range(kind, ROWS, 5))) for kind in range(5)
    ]
    rolled = [*(systems.folder / "rolled").glob("*.json")]
    assert len(rolled) < FILES, "files are of several epochs"
    in_files = [json.loads(line) for each in rolled for line in each.read_text().splitlines()]
    assert sorted(each["counter"] for each in in_files) == [*range(ROWS)]


@pytest.mark.parametrize("committed", [1, 2])
def test_an_epoch_that_is_in_some_systems_is_completed_in_the_others(
    systems: Systems,
    kafka_jars: tuple[Path, ...],
    spark: SparkSession,
    committed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(spark, systems.folder, systems.sql(IMPULSE))
    engine = job.open(Leg(rows=10))
    engine.run_epoch()
    assert systems.held() == (10, 10, 10)

    def fail() -> None:
        raise InjectedFault(f"after {committed} commits")

    _after_commits(monkeypatch, engine, committed, fail)
    with pytest.raises(Exception) as raised:
        engine.run_epoch()
    assert isinstance(translate(raised.value), InjectedFault)
    assert systems.held() == tuple(20 if place < committed else 10 for place in range(3))
    again = job.open(Leg(rows=10))
    assert systems.held() == (20, 20, 20)
    again.run_epoch()
    assert systems.held() == (30, 30, 30)


def test_an_epoch_that_a_system_refused_is_completed_once_the_cause_is_gone(
    systems: Systems,
    kafka_jars: tuple[Path, ...],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(spark, systems.folder, systems.sql(IMPULSE))
    engine = job.open(Leg(rows=10))
    engine.run_epoch()

    def rename() -> None:
        systems.execute("ALTER TABLE counted RENAME TO hidden")

    _after_commits(monkeypatch, engine, 1, rename)
    with pytest.raises(Exception) as raised:
        engine.run_epoch()
    refused = translate(raised.value)
    assert refused.domain is ErrorDomain.USER
    assert "counted" in str(refused)
    with pytest.raises(Exception, match="counted"):
        job.open(Leg(rows=10))
    systems.execute("ALTER TABLE hidden RENAME TO counted")
    assert systems.held() == (20, 20, 10)
    again = job.open(Leg(rows=10))
    assert systems.held() == (20, 20, 20)
    again.run_epoch()
    assert systems.held() == (30, 30, 30)


def test_explain_says_in_which_order_tables_are_committed(systems: Systems) -> None:
    text = explain_graph(compile_pipeline(systems.sql(IMPULSE), CONNECTORS, {}), 2)
    lines = text.partition("Commits of an epoch, one after another\n")[2].splitlines()
    assert [each.split() for each in lines[:3]] == [
        ["1", "table", "published", "through", "kafka"],
        ["2", "table", "kept", "through", "iceberg"],
        ["3", "table", "counted", "through", "postgres"],
    ]
    assert "may find the epoch in one and not yet in the other" in lines[3]


def _after_commits(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, commits: int, action: Callable[[], None]
) -> None:
    """Have something happen in the next epoch after so many commits."""
    hit = engine._faults.hit

    def acting(point: FaultPoint, epoch: int, passage: int = 1) -> None:
        if point is FaultPoint.SINK_BETWEEN and passage == commits:
            action()
        hit(point, epoch, passage)

    monkeypatch.setattr(engine._faults, "hit", acting)
