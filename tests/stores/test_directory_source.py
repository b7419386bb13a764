"""A folder of an object store as a `filesystem` source: few LIST requests, and ETags that are compared."""

from __future__ import annotations

import functools
import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.connectors.connector import SourceDeclaration
from resurgence.connectors.directory import DirectorySource, DirectorySourceOptions
from resurgence.connectors.directory.positions import Position
from resurgence.connectors.formats.json.lines import JSON, JsonSourceOptions
from resurgence.engine.spark.errors import translate
from resurgence.errors import SourceRangeGone
from resurgence.graph.values import Column
from resurgence.storage.object_store import ObjectStore
from resurgence.storage.parallel import in_parallel
from tests.engine.harness import Job, Leg, read_lines, sink_table
from tests.servers.faulty_proxy import FaultyProxy

NOW = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.fixture(
    params=[
        "s3_url",
        pytest.param("azure_url", marks=pytest.mark.long),
        pytest.param("gcs_url", marks=pytest.mark.long),
    ]
)
def url(request: pytest.FixtureRequest) -> str:
    """A new folder of each kind of store."""
    found: str = request.getfixturevalue(request.param)
    return found


def source(path: str, **options: str) -> DirectorySource:
    named = {name.replace("__", "."): value for name, value in options.items()}
    declaration = SourceDeclaration(
        "events",
        (Column(name="id", type="BIGINT"),),
        format=JSON,
        format_options=JsonSourceOptions(),
    )
    return DirectorySource(DirectorySourceOptions.read({"path": path, **named}), declaration)


def write(store: ObjectStore, *names: str) -> None:
    in_parallel([functools.partial(store.replace, each, b'{"id": 1}\n') for each in names])


def test_a_plan_lists_only_the_names_after_the_last_one(s3_proxy: FaultyProxy, s3_url: str) -> None:
    store = ObjectStore(s3_url)
    names = [f"{number:05}.json" for number in range(2500)]
    write(store, *names)
    made = source(s3_url, source__order="name", source__epoch_files="1000")
    offset, now = made.first_offset(NOW, 2), NOW
    s3_proxy.arrived.clear()
    read: list[str] = []
    while (found := made.plan(offset, 10**6, now)) is not None:
        read += [each.path for each in Position.of(found.end).pieces()]
        offset = found.end
    assert read == names
    whole = s3_proxy.arrived["LIST"]
    assert whole <= 3

    # Within the interval nothing is requested.
    for _ in range(5):
        assert made.plan(offset, 10**6, now) is None
    assert s3_proxy.arrived["LIST"] == whole
    s3_proxy.arrived.clear()
    now += timedelta(seconds=6)
    assert made.plan(offset, 10**6, now) is None
    # The first time it also audits all names, which is not due again for ten minutes.
    s3_proxy.arrived.clear()
    for number in range(5):
        write(store, f"1{number:04}.json")
        now += timedelta(seconds=6)
        found = made.plan(offset, 10**6, now)
        assert found is not None
        offset = found.end
    assert s3_proxy.arrived["LIST"] == 5


def test_all_files_are_listed_at_intervals_if_names_can_be_any(
    s3_proxy: FaultyProxy, s3_url: str
) -> None:
    store = ObjectStore(s3_url)
    write(store, *(f"{number:05}.json" for number in range(1200)))
    options = {"source__discovery_interval": "1m", "source__remembered_files": "2000"}
    made = source(s3_url, source__epoch_files="100", **options)
    offset, files, now = made.first_offset(NOW, 2), 0, datetime.now(UTC)
    while (found := made.plan(offset, 10**6, now)) is not None:
        offset, files = found.end, files + len(Position.of(found.end).pieces())
    assert files == 1200
    assert s3_proxy.arrived["LIST"] == 2
    write(store, "00000-late.json")
    assert made.plan(offset, 10**6, now + timedelta(seconds=59)) is None
    assert s3_proxy.arrived["LIST"] == 2
    found = made.plan(offset, 10**6, now + timedelta(minutes=2))
    assert found is not None
    assert [each.path for each in Position.of(found.end).pieces()] == ["00000-late.json"]
    assert s3_proxy.arrived["LIST"] == 4


def test_a_pattern_begins_a_listing_in_the_middle(s3_proxy: FaultyProxy, s3_url: str) -> None:
    store = ObjectStore(s3_url)
    write(store, *(f"2023-{number:04}.json" for number in range(1100)), "2024", "2024-1.json", "3")
    made = source(f"{s3_url}/2024*", source__stop_at="latest")
    offset = made.first_offset(NOW, 2)
    s3_proxy.arrived.clear()
    found = made.plan(offset, 10**6, NOW)
    assert found is not None
    assert [each.path for each in Position.of(found.end).pieces()] == ["2024", "2024-1.json"]
    assert s3_proxy.arrived["LIST"] == 1


@pytest.mark.parametrize("order", ["name", "modified"])
def test_every_store_lists_what_is_read_and_then_only_what_is_new(url: str, order: str) -> None:
    store = ObjectStore(url)
    names = [f"{number % 3}/é {number:02}.json" for number in range(30)]
    write(store, *names, "0/other.txt")
    made = source(f"{url}/*/*.json", source__order=order, source__epoch_files="7")
    offset, now = made.first_offset(NOW, 2), datetime.now(UTC)
    read: list[str] = []
    for new in ([], ["3/new.json", "3/é.json"]):
        write(store, *new)
        now += timedelta(minutes=2)
        while (found := made.plan(offset, 10**6, now)) is not None:
            read += [each.path for each in Position.of(found.end).pieces()]
            offset = found.end
    assert sorted(read) == sorted([*names, "3/new.json", "3/é.json"])
    assert order == "modified" or read == sorted(read)


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path, url: str) -> Job:
    sql = (
        "CREATE TABLE events (id BIGINT, line BIGINT METADATA FROM 'line') WITH (connector ="
        f" 'filesystem', path = '{url}/in', type = 'source', 'source.stop_at' = 'latest');\n"
    )
    sql += sink_table(tmp_path / "out.json", name="out", connector="single_file")
    return Job(spark, tmp_path, f"{sql}INSERT INTO out SELECT id, line FROM events")


def lines(*ids: int) -> bytes:
    return b"".join(b'{"id": %d}\n' % each for each in ids)


def test_objects_are_read_once_over_several_epochs(job: Job, tmp_path: Path, url: str) -> None:
    store = ObjectStore(f"{url}/in")
    store.create("b.json.gz", gzip.compress(lines(*range(10, 15))))
    store.create("a.json", lines(*range(10)))
    store.create("c/d.json", lines(20))
    job.run([Leg(rows=4, epochs=1), Leg(rows=3, epochs=1)])
    rows = [(each["id"], each["line"]) for each in read_lines(tmp_path / "out.json")]
    assert sorted(rows) == [
        *((each, each + 1) for each in range(10)),
        *((each + 10, each + 1) for each in range(5)),
        (20, 1),
    ]


def test_an_object_that_was_replaced_after_it_was_planned_fails_the_job(job: Job, url: str) -> None:
    store = ObjectStore(f"{url}/in")
    store.create("a.json", lines(*range(10)))
    engine = job.open(Leg(rows=4))
    assert engine.run_epoch() is not None
    store.replace("a.json", lines(*range(10, 20)))
    with pytest.raises(Exception) as caught:
        engine.run_epoch()
    failure = translate(caught.value)
    assert isinstance(failure, SourceRangeGone)
    assert f"{url}/in/a.json has changed after it was planned" in failure.message
