"""Changes by key, from a database that logs keys only: however they are split into epochs, the
changelog is valid and adds up to the rows of the database.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.connectors.formats.debezium.types import PLACEHOLDER
from resurgence.engine.epochs.engine import Engine
from resurgence.engine.operators.changelogs.changelog_normaliser import ChangelogNormaliser
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.errors import BadRecord
from resurgence.faults import FaultPoint
from resurgence.graph.specs.normalise import NormaliseSpec
from resurgence.graph.values import OPERATION, POSITION
from resurgence.ids import Epoch, OperatorId
from resurgence.state.records import StateFile
from tests.engine.harness import Job, Leg, random_legs, write_lines
from tests.sql.changelog import merge

Key = tuple[int, str]
Row = dict[str, object]
Event = dict[str, object]
NAMES = ("id", "part", "kind", "amount", "body")
COLUMNS = "id BIGINT, part TEXT, kind TEXT, amount BIGINT, body TEXT, PRIMARY KEY (id, part)"


def key_of(row: Row) -> Key:
    return row["id"], row["part"]  # type: ignore[return-value]


def applied(events: Iterable[Event]) -> dict[Key, Row]:
    """The oracle: the events one after the other."""
    rows: dict[Key, Row] = {}
    for each in events:
        before, after = each["before"], each["after"]
        if each["op"] == "t":
            rows.clear()
        elif isinstance(after, dict):
            held = rows.get(key_of(after), {})
            kept = {
                name: held.get(name, value) if value == PLACEHOLDER else value
                for name, value in after.items()
            }
            rows[key_of(after)] = kept
        elif isinstance(before, dict):
            rows.pop(key_of(before), None)
    return rows


@dataclass
class Database:
    """Makes the events of a random life of a table, as Postgres and Debezium do by default."""

    rng: random.Random
    rows: dict[Key, Row] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def send(self, op: str, before: Row | None = None, after: Row | None = None) -> None:
        self.events.append({"before": before, "after": after, "op": op})

    def upsert(self) -> None:
        key = self.rng.randint(1, 6), self.rng.choice("ab")
        held = self.rows.get(key)
        row: Row = {
            "id": key[0],
            "part": key[1],
            "kind": self.rng.choice(["tool", "toy", None]),
            "amount": self.rng.randint(0, 3),
            "body": self.rng.choice(["long", "longer", None]),
        }
        sent = dict(row)
        if held is not None and self.rng.random() < 0.4:
            row["body"], sent["body"] = held["body"], PLACEHOLDER
        self.rows[key] = row
        self.send("c" if held is None else "u", None, sent)

    def delete(self) -> None:
        if self.rows:
            key = self.rng.choice(sorted(self.rows))
            del self.rows[key]
            self.send("d", {**dict.fromkeys(NAMES), "id": key[0], "part": key[1]})

    def unknown(self) -> None:
        self.send("d", {"id": 99, "part": "a"})

    def truncate(self) -> None:
        self.rows.clear()
        self.send("t")

    def snapshot(self) -> None:
        for row in self.rows.values():
            self.send("r", None, dict(row))

    def send_again(self) -> None:
        self.events += self.events[-self.rng.randint(1, 12) :]


def random_events(seed: int, steps: int = 90) -> list[Event]:
    database = Database(random.Random(seed))
    actions: dict[Callable[[Database], None], int] = {
        Database.upsert: 60,
        Database.delete: 15,
        Database.snapshot: 3,
        Database.send_again: 6,
        Database.truncate: 3,
        Database.unknown: 3,
    }
    for _ in range(steps):
        (action,) = database.rng.choices(list(actions), list(actions.values()))
        action(database)
    assert {each["op"] for each in database.events} == set("crudt")
    return database.events


def table(path: Path, columns: str = COLUMNS, more: str = "") -> str:
    return (
        f"CREATE TABLE items ({columns}) WITH (connector = 'single_file', path = '{path}',"
        f" format = 'debezium_json', type = 'source'{more});\n"
    )


def sink(folder: Path, name: str, columns: str = "") -> str:
    return (
        f"CREATE TABLE {name} {columns} WITH (connector = 'single_file',"
        f" path = '{folder}/{name}.changes', format = 'debezium_json', type = 'sink');\n"
    )


def job(spark: SparkSession, folder: Path, events: Sequence[Event]) -> Job:
    """Rows with and without keys, and an aggregate over them."""
    path = write_lines(folder / "items.json", events)
    sql = table(path) + sink(folder, "copies", f"({COLUMNS})") + sink(folder, "bodies")
    sql += sink(folder, "totals") + "INSERT INTO copies SELECT * FROM items;\n"
    sql += "INSERT INTO bodies SELECT body, amount FROM items WHERE amount > 0;\n"
    sql += "INSERT INTO totals SELECT kind, count(*) AS n, sum(amount) AS total FROM items GROUP BY kind"
    return Job(spark, folder, sql)


def left(path: Path) -> Counter[str]:
    """What a changelog comes to."""
    return Counter(merge(path.read_text().splitlines())) if path.exists() else Counter()


def texts(rows: Iterable[Row]) -> Counter[str]:
    return Counter(json.dumps(each) for each in rows)


def require_answers(folder: Path, events: Sequence[Event]) -> None:
    """Hold all sinks against the oracle."""
    rows = list(applied(events).values())
    assert left(folder / "copies.changes") == texts(rows)
    bodies = [
        {"body": each["body"], "amount": each["amount"]} for each in rows if each["amount"] != 0
    ]
    assert left(folder / "bodies.changes") == texts(bodies)
    amounts: defaultdict[object, list[int]] = defaultdict(list)
    for each in rows:
        assert isinstance(each["amount"], int)
        amounts[each["kind"]].append(each["amount"])
    totals: list[Row] = [
        {"kind": kind, "n": len(found), "total": sum(found)} for kind, found in amounts.items()
    ]
    assert left(folder / "totals.changes") == texts(totals)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))]
)
def test_the_changelog_adds_up_to_the_rows_of_the_database_after_every_epoch(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    events = random_events(seed)
    items = job(spark, tmp_path, events)
    items.settings = {"checkpoint.compact_files": "2"}
    compactions = 0

    def check(engine: Engine) -> None:
        nonlocal compactions
        require_answers(tmp_path, events[: sum(report.rows for report in items.reports)])
        compactions += _settled(engine)

    rest = Leg(len(events) // 7, parallelism=2)
    items.run([*random_legs(seed, len(events) // 3, 3, [2, 1, 3]), rest], check)
    assert compactions


def _settled(engine: Engine) -> bool:
    """Wait for the compaction that is running, if there is one."""
    running = engine.compaction._compactor.running
    if running is not None:
        running.written.result(60)
    return running is not None


@pytest.mark.long  # The SQL cases with keyed changelogs crash, too.
@pytest.mark.parametrize(
    "point",
    [
        FaultPoint.STATE_PARTIAL,
        pytest.param(FaultPoint.STATE_WRITTEN, marks=pytest.mark.long),
        pytest.param(FaultPoint.MANIFEST_PUBLISHED, marks=pytest.mark.long),
        FaultPoint.SINK_COMMITTED,
    ],
)
def test_a_crash_changes_nothing(spark: SparkSession, tmp_path: Path, point: FaultPoint) -> None:
    events = random_events(11, 60)
    items = job(spark, tmp_path, events)
    items.settings = {"faults": f"{point}@3=raise"}
    with pytest.raises(Exception, match="fault injected"):
        items.run([Leg(len(events) // 4, parallelism=2)])
    assert items.open().epoch >= 2
    items.run([Leg(len(events) // 3, parallelism=3)])
    require_answers(tmp_path, events)


@pytest.mark.long
def test_state_is_one_row_per_key_however_often_it_changes(
    spark: SparkSession, tmp_path: Path
) -> None:
    row: Row = {"id": 0, "part": "a", "kind": "toy", "amount": 0, "body": "x"}
    events: list[Event] = [
        {"before": None, "after": {**row, "id": number % 5, "amount": number}, "op": "u"}
        for number in range(200)
    ]
    events += [{"before": {"id": 4, "part": "a"}, "after": None, "op": "d"}]
    items = job(spark, tmp_path, events)
    items.settings = {"checkpoint.compact_files": "2"}
    sizes = list[int]()

    def measure(engine: Engine) -> None:
        _settled(engine)
        sizes.append(sum(each.rows for each in kept_files(engine)))

    items.run([Leg(20, parallelism=1)], measure)
    assert len(sizes) == 11
    assert max(sizes) <= 20, sizes
    require_answers(tmp_path, events)


def kept_files(engine: Engine) -> tuple[StateFile, ...]:
    (normalised,) = engine._pipeline.graph.all_of(NormaliseSpec)
    return engine._pipeline.live_files()[normalised.id].files


def test_a_truncate_drops_all_files(spark: SparkSession, tmp_path: Path) -> None:
    def upsert(number: int) -> Event:
        row = {"id": number, "part": "a", "kind": "toy", "amount": 1, "body": "x"}
        return {"before": None, "after": row, "op": "c"}

    truncate: Event = {"before": None, "after": None, "op": "t"}
    events = [*map(upsert, range(20)), upsert(3), upsert(60), truncate, upsert(3), upsert(50)]
    items = job(spark, tmp_path, events)
    engine = items.open(Leg(20))
    for _ in range(2):
        assert engine.run_epoch() is not None
    require_answers(tmp_path, events)
    assert sum(each.rows for each in kept_files(engine)) == 2
    # What is back in the same epoch as it was is no change.
    lines = (tmp_path / "copies.changes").read_text().splitlines()[20:]
    assert Counter(json.loads(each)["op"] for each in lines) == {"d": 19, "c": 1}


def test_events_sent_again_are_idempotent(spark: SparkSession, tmp_path: Path) -> None:
    row = {"id": 1, "part": "a", "kind": "toy", "amount": 1, "body": "x"}
    events: list[Event] = [{"before": None, "after": row, "op": op} for op in "crur"]
    items = job(spark, tmp_path, events)
    items.run([Leg(1)])
    for name in ("copies", "bodies", "totals"):
        assert len((tmp_path / f"{name}.changes").read_text().splitlines()) == 1, name


def test_computed_columns_are_evaluated_over_complete_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = (
        "id BIGINT PRIMARY KEY, body TEXT, size INT NOT NULL GENERATED ALWAYS AS (length(body))"
    )
    events: list[Event] = [
        {"before": None, "after": {"id": 1, "body": "long"}, "op": "c"},
        {"before": None, "after": {"id": 1, "body": PLACEHOLDER}, "op": "u"},
        {"before": None, "after": {"id": 2, "body": "x"}, "op": "c"},
        {"before": {"id": 2}, "after": None, "op": "d"},
    ]
    path = write_lines(tmp_path / "items.json", events)
    sql = table(path, columns) + sink(tmp_path, "sizes") + "INSERT INTO sizes SELECT * FROM items"
    Job(spark, tmp_path, sql).run([Leg(1)])
    assert left(tmp_path / "sizes.changes") == texts([{"id": 1, "body": "long", "size": 4}])


def test_without_a_primary_key_such_events_are_bad_records(
    spark: SparkSession, tmp_path: Path
) -> None:
    events: list[Event] = [
        {"before": None, "after": {"id": 1}, "op": "c"},
        {"before": None, "after": {"id": 1}, "op": "u"},
    ]
    path = write_lines(tmp_path / "items.json", events)
    sql = (
        table(path, "id BIGINT")
        + sink(tmp_path, "copies")
        + "INSERT INTO copies SELECT * FROM items"
    )
    with pytest.raises(BadRecord, match="line 2, column 2: 'before' is missing") as caught:
        Job(spark, tmp_path, sql).run()
    assert "Declare a PRIMARY KEY" in caught.value.hint
    assert not (tmp_path / "copies.changes").exists()


@pytest.mark.parametrize(
    ("sizes", "merged"),
    [
        ([], 0),
        ([10], 0),
        ([10, 10], 2),
        ([900, 10, 10], 2),
        ([900, 1, 50, 10, 10], 4),
        ([20, 900, 30, 10, 20, 1], 6),
        ([20, 500, 300, 200, 1], 5),
    ],
)
def test_only_consecutive_files_are_compacted(
    spark: SparkSession, sizes: list[int], merged: int
) -> None:
    """A value that an older file lacks may be in the one between."""
    rows = spark.createDataFrame([], f"id BIGINT, {OPERATION} STRING, {POSITION} BIGINT")
    operator = NormaliseSpec(
        id=OperatorId("normalise-1"), input=OperatorId("source-items"), keys=("id",)
    )
    normaliser = ChangelogNormaliser(operator, rows, url="file:///x", folder="x", parallelism=1)
    files = tuple(
        StateFile(
            path=str(epoch),
            subtask=0,
            epoch=Epoch(epoch),
            rows=1,
            bytes=size,
            key_groups=1,
            time_start=epoch,
            time_end=epoch,
            digest="",
        )
        for epoch, size in enumerate(sizes, start=1)
    )
    live = LiveFiles.none(1).appended(files)
    assert normaliser.mergeable(live) == {each.path for each in files[len(files) - merged :]}
