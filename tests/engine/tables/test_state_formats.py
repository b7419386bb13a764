"""State directories of earlier releases: every frozen sample is restored and run to its end. One of
a newer release is refused and not changed.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.config import settings_from
from resurgence.engine.epochs.engine import Engine
from resurgence.engine.epochs.in_process import open_engine
from resurgence.errors import NewerFormat
from resurgence.state.records import (
    FORMAT_VERSION,
    CommittedRecord,
    GenerationRecord,
    Manifest,
    OperatorCheckpointMetadata,
    Record,
    decode,
    object_digest,
)
from resurgence.storage.object_store import ObjectStore
from tests.engine.harness import sorted_rows
from tests.samples.make_sample import EPOCH_ROWS, EPOCHS, HERE, JOB, PARALLELISM, sample_graph

VERSIONS = (FORMAT_VERSION,)
ROWS = 600


@pytest.fixture(params=VERSIONS, ids=lambda version: f"format-{version}")
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def folder(version: int, tmp_path: Path) -> Path:
    """A copy of a frozen sample."""
    return Path(shutil.copytree(HERE / f"format-{version}", tmp_path / "sample"))


def open_sample(
    spark: SparkSession, folder: Path, rows: int = EPOCH_ROWS, parallelism: int = PARALLELISM
) -> Engine:
    settings = {"pipeline.epoch_rows": str(rows), "pipeline.parallelism": str(parallelism)}
    return open_engine(
        spark, sample_graph(folder), ObjectStore(str(folder)), JOB, settings_from(settings)
    )


def finish(engine: Engine) -> None:
    while not engine.finished:
        engine.run_epoch()


def assert_batch_answer(spark: SparkSession, folder: Path) -> None:
    found = spark.read.schema("start TIMESTAMP, k BIGINT, n BIGINT, total BIGINT").json(
        str(folder / "out")
    )
    spark.range(ROWS).selectExpr(
        "id AS counter",
        "timestamp'2024-01-01T00:00:00Z' + make_dt_interval(0, 0, 0, id / 10) AS at",
    ).createOrReplaceTempView("numbers")
    expected = spark.sql(
        "SELECT window(at, '10 seconds').start, counter % 7 AS k, count(*), sum(counter)"
        " FROM numbers GROUP BY 1, 2"
    )
    assert sorted_rows(found) == sorted_rows(expected)


def newest_manifest(folder: Path) -> Manifest:
    path = max(folder.glob(f"{JOB}/epochs/*/manifest-*.json"))
    return decode(Manifest, path.read_bytes(), str(path))


def content(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_a_sample_has_its_format_version_and_no_absolute_paths(version: int) -> None:
    records = sorted((HERE / f"format-{version}" / JOB).rglob("*.json"))
    assert {json.loads(each.read_bytes())["version"] for each in records} == {version}
    assert {each.name.split("-")[0].removesuffix(".json") for each in records} >= {
        "operator",
        "manifest",
        "committed",
        "0000000001",
    }
    for path, data in content(HERE / f"format-{version}").items():
        assert re.search(rb'"/|://|/tmp|/home|/root', data) is None, path


def test_a_state_dir_of_any_format_is_restored_and_run_to_its_end(
    spark: SparkSession, folder: Path
) -> None:
    before = content(folder)
    engine = open_sample(spark, folder)
    plan = engine._plan
    assert (engine.epoch, plan.generation, plan.fallbacks) == (EPOCHS, 2, ())
    assert (plan.commit_pending, plan.recorded) == (False, {})
    finish(engine)
    assert_batch_answer(spark, folder)
    assert before.items() <= content(folder).items()
    manifest = newest_manifest(folder)
    assert (manifest.version, manifest.epoch, manifest.finished) == (FORMAT_VERSION, 4, True)
    assert manifest.totals.since == 1
    assert sum(manifest.totals.counts.rows_in.values()) == ROWS


def test_a_state_dir_falls_back_from_new_epochs_to_those_of_its_sample(
    spark: SparkSession, folder: Path
) -> None:
    engine = open_sample(spark, folder, rows=50)
    for _ in range(2):
        engine.run_epoch()
    for epoch in (4, 5):
        (folder / f"{JOB}/epochs/{epoch:010}/manifest-0.json").write_bytes(b"")
    engine = open_sample(spark, folder, rows=70, parallelism=3)
    assert engine.epoch == EPOCHS
    assert [each.epoch for each in engine._plan.fallbacks] == [5, 4]
    finish(engine)
    assert_batch_answer(spark, folder)


def test_a_damaged_checkpoint_of_any_format_causes_a_fallback(
    spark: SparkSession, folder: Path
) -> None:
    path = folder / f"{JOB}/epochs/{EPOCHS:010}/manifest-0.json"
    path.write_bytes(path.read_bytes()[:-20])
    engine = open_sample(spark, folder)
    assert engine.epoch == EPOCHS - 1
    finish(engine)
    assert_batch_answer(spark, folder)


def raise_version(path: Path, kind: type[Record], **changes: object) -> None:
    """Make a record one of the next format, whole in itself."""
    record = decode(kind, path.read_bytes(), str(path))
    path.write_bytes(record.model_copy(update={"version": FORMAT_VERSION + 1, **changes}).encode())


def as_left_by_a_newer_release(folder: Path) -> None:
    """The newest generation, and all that it wrote, in the next format."""
    raise_version(folder / f"{JOB}/generations/0000000002.json", GenerationRecord)
    epoch = folder / f"{JOB}/epochs/0000000004"
    manifest = newest_manifest(folder)
    digests = {}
    for operator, digest in manifest.operators.items():
        raise_version(folder / digest.path, OperatorCheckpointMetadata)
        digests[operator] = object_digest(digest.path, (folder / digest.path).read_bytes())
    raise_version(epoch / "manifest-0.json", Manifest, operators=digests)
    raise_version(epoch / "committed.json", CommittedRecord)


def test_a_state_dir_of_a_newer_release_is_refused_and_unchanged(
    spark: SparkSession, folder: Path
) -> None:
    open_sample(spark, folder, rows=50).run_epoch()
    as_left_by_a_newer_release(folder)
    before = content(folder)
    with pytest.raises(NewerFormat) as caught:
        open_sample(spark, folder)
    assert caught.value.message == (
        f"{JOB}/generations/0000000002.json has format version {FORMAT_VERSION + 1},"
        f" but this release reads up to {FORMAT_VERSION}"
    )
    assert (
        caught.value.hint == "Run the job with the release that wrote the record, or a newer one."
    )
    assert content(folder) == before
