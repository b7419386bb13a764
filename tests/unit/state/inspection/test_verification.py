"""The deep check detects what a restore does not, and condemns only confirmed damage."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type
from tests.unit.state.real_state import (
    MINUTE,
    SCHEMA,
    SOURCE,
    WINDOW,
    RealJob,
    schema_text,
    state_rows,
)

from resurgence.errors import StorageError
from resurgence.ids import Epoch, Generation
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.verification import (
    SourceFindings,
    Verification,
    Verifier,
    condemn,
    condemnable,
)
from resurgence.state.records import CondemnedRecord, Manifest, StateFile, decode
from resurgence.state.table_schema import schema_faults, table_columns
from resurgence.storage.object_store import ObjectStore


@pytest.fixture
def real(tmp_path: Path) -> RealJob:
    made = RealJob.at(str(tmp_path))
    made.run(1, 2)
    return made


def reasons(real: RealJob, epoch: int) -> tuple[str, ...]:
    """All that the deep check has against a checkpoint."""
    return Verifier(real.backend).verify(real.manifest_path(epoch)).reasons


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def footer_start(data: bytes) -> int:
    return len(data) - 8 - int(struct.unpack("<I", data[-8:-4])[0])


def in_a_page(real: RealJob, file: StateFile) -> None:
    path = real.path(file.path)
    flip(path, footer_start(path.read_bytes()) - 10)


def truncated(real: RealJob, file: StateFile) -> None:
    path = real.path(file.path)
    path.write_bytes(path.read_bytes()[:-100])


def blanked_end(real: RealJob, file: StateFile) -> None:
    path = real.path(file.path)
    path.write_bytes(path.read_bytes()[:-100] + bytes(100))


def gone(real: RealJob, file: StateFile) -> None:
    real.path(file.path).unlink()


def metadata_path(real: RealJob, epoch: int) -> Path:
    return real.path(real.backend.paths.operator(Epoch(epoch), WINDOW, real.claim.generation))


def metadata_gone(real: RealJob, file: StateFile) -> None:
    metadata_path(real, 3).unlink()


def metadata_changed(real: RealJob, file: StateFile) -> None:
    flip(metadata_path(real, 3), 100)


def manifest_changed(real: RealJob, file: StateFile) -> None:
    flip(real.path(real.manifest_path(3)), 100)


DAMAGE: list[tuple[Callable[[RealJob, StateFile], None], str]] = [
    (in_a_page, "does not match its digest"),
    (truncated, "bytes instead of"),
    (blanked_end, "does not match its digest"),
    (gone, "is missing"),
    (metadata_gone, "metadata of window-7f is missing"),
    (metadata_changed, "metadata of window-7f does not match its digest"),
    (manifest_changed, "does not match its checksum"),
]


def test_a_valid_checkpoint_has_no_faults(real: RealJob) -> None:
    assert reasons(real, 2) == ()
    found = Verifier(real.backend).verify(real.manifest_path(2))
    assert (found.epoch, found.attempt, found.files) == (2, 0, 2)
    assert found.bytes == sum(file.bytes for file in real.files)


@pytest.mark.parametrize(("damage", "reason"), DAMAGE, ids=[each[0].__name__ for each in DAMAGE])
def test_damage_is_detected_and_the_condemned_checkpoint_is_not_restored(
    real: RealJob, damage: Callable[[RealJob, StateFile], None], reason: str
) -> None:
    real.run(3)
    damage(real, real.files[-1])
    (found,) = reasons(real, 3)
    assert reason in found
    assert reasons(real, 2) == ()

    verification = Verifier(real.backend).verify(real.manifest_path(3))
    assert condemn(real.backend, verification)
    path = real.backend.paths.condemned(Epoch(3), 0)
    record = decode(CondemnedRecord, real.backend.store.read(path), path)
    assert (record.reasons, record.generation, record.job) == ((found,), 1, real.claim.job)
    plan = real.plan()
    assert plan.epoch == 2
    assert [(each.epoch, each.reasons) for each in plan.fallbacks] == [(3, (found,))]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"file_changes": {"rows": 99}}, "has 100 rows instead of 99"),
        (
            {"file_changes": {"time_start": 3 * MINUTE + 1}},
            f"has bins from {3 * MINUTE} to {4 * MINUTE}, outside the range",
        ),
        ({"file_changes": {"time_end": 4 * MINUTE - 1}}, "outside the range"),
        (
            {"schema": schema_text({**SCHEMA, "a0": "string"})},
            "has column a0 as int64 instead of string",
        ),
        (
            {"schema": schema_text({"bin": "long", "k0": "string"})},
            "has the columns bin, k0, a0, a1_sum instead of bin, k0",
        ),
        ({"identity": "another"}, "manifest belongs to another job (another)"),
    ],
    ids=["rows", "first bin", "last bin", "type", "columns", "foreign job"],
)
def test_the_records_are_compared_with_the_files(
    real: RealJob, changes: dict[str, Any], reason: str
) -> None:
    real.files.clear()
    real.commit(real.seal(3, **changes))
    verification = Verifier(real.backend).verify(real.manifest_path(3))
    assert reason in verification.faults[0]
    assert condemn(real.backend, verification)
    assert real.chosen() == 2


def test_a_row_that_the_footer_does_not_count_is_detected(real: RealJob) -> None:
    """The file is another one of the same size, as a wrong copy would be."""
    rows = state_rows(3)
    real.seal(3, rows=rows, file_changes={"rows": rows.num_rows})
    path = real.path(real.files[-1].path)
    table = pa.Table.from_batches([rows.slice(0, rows.num_rows - 1)])
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="lz4", write_page_checksum=True)
    path.write_bytes(sink.getvalue().to_pybytes().ljust(real.files[-1].bytes, b"\0"))
    assert len(reasons(real, 3)) == 1


@pytest.mark.parametrize("bit", [0, 7])
def test_any_flipped_bit_of_a_state_file_is_detected(tmp_path: Path, bit: int) -> None:
    real = RealJob.at(str(tmp_path))
    real.run(1)
    (file,) = real.files
    path = real.path(file.path)
    data = path.read_bytes()
    for position in range(bit, len(data), 11):
        flip(path, position, bit)
        assert reasons(real, 1) == (f"state file {file.path} does not match its digest",)
        path.write_bytes(data)


class FlakyStore(ObjectStore):
    """A store that does something before each read."""

    def __init__(self, url: str, before_read: Callable[[str], None]) -> None:
        super().__init__(url)
        self._before_read = before_read

    def read(self, path: str) -> bytes:
        self._before_read(path)
        return super().read(path)


def flaky(real: RealJob, before_read: Callable[[str], None]) -> StateBackend:
    return StateBackend(FlakyStore(real.backend.store.url, before_read), real.backend.paths.job)


def test_a_store_that_fails_condemns_nothing(real: RealJob) -> None:
    def fail(path: str) -> None:
        if path.endswith(".parquet"):
            raise StorageError("the wire is cut")

    found = Verifier(flaky(real, fail)).verify(real.manifest_path(2))
    assert found.faults == ()
    assert len(found.unchecked) == 2
    assert "the wire is cut" in found.unchecked[0]
    assert condemnable([found], [Epoch(1), Epoch(2)]) == ()


def test_a_store_that_fails_on_a_record_is_an_error(real: RealJob) -> None:
    def fail(path: str) -> None:
        if "operator-" in path:
            raise StorageError("the wire is cut")

    with pytest.raises(StorageError, match="the wire is cut"):
        Verifier(flaky(real, fail)).verify(real.manifest_path(2))


def test_damage_that_a_second_read_does_not_confirm_is_ignored(real: RealJob) -> None:
    """The first answer of the store is damaged, the second is not."""
    path = real.path(real.files[-1].path)
    whole = path.read_bytes()
    in_a_page(real, real.files[-1])
    asked: list[str] = []

    def mend_after_the_first(asked_for: str) -> None:
        if asked_for == real.files[-1].path:
            asked.append(asked_for)
            if len(asked) == 2:
                path.write_bytes(whole)

    found = Verifier(flaky(real, mend_after_the_first)).verify(real.manifest_path(2))
    assert len(asked) == 2
    assert found.reasons == ()


def test_missing_metadata_that_a_second_read_finds_is_ignored(real: RealJob) -> None:
    path = metadata_path(real, 2)
    whole = path.read_bytes()
    path.unlink()
    asked: list[str] = []

    def bring_back(asked_for: str) -> None:
        asked.append(asked_for)
        if asked.count(real.manifest_path(2)) == 1:
            path.write_bytes(whole)

    assert Verifier(flaky(real, bring_back)).verify(real.manifest_path(2)).reasons == ()


def test_a_checkpoint_that_retention_deletes_meanwhile_is_not_damaged(real: RealJob) -> None:
    def retire(asked_for: str) -> None:
        if asked_for.endswith(".parquet"):
            real.path(real.manifest_path(1)).unlink(missing_ok=True)
            real.path(real.files[0].path).unlink(missing_ok=True)

    found = Verifier(flaky(real, retire)).verify(real.manifest_path(1))
    assert found.went
    assert found.reasons == ()


def test_a_file_that_several_checkpoints_name_is_read_once(real: RealJob) -> None:
    read: list[str] = []
    verifier = Verifier(flaky(real, read.append))
    verifier.verify(real.manifest_path(1))
    verifier.verify(real.manifest_path(2))
    files = [path for path in read if path.endswith(".parquet")]
    assert sorted(files) == sorted(file.path for file in real.files)


def test_files_in_memory_are_bounded(real: RealJob) -> None:
    real.run(*range(3, 9))
    lock, together, most = threading.Lock(), [0], [0]

    class CountingStore(ObjectStore):
        def read(self, path: str) -> bytes:
            with lock:
                together[0] += 1
                most[0] = max(most[0], together[0] if path.endswith(".parquet") else 0)
            try:
                return super().read(path)
            finally:
                with lock:
                    together[0] -= 1

    backend = StateBackend(CountingStore(real.backend.store.url), real.backend.paths.job)
    found = Verifier(backend, threads=4, most_bytes=1).verify(real.manifest_path(8))
    assert found.reasons == ()
    assert found.files == 8
    assert most == [1]


def test_sources_that_lost_their_input_are_reported_but_condemn_nothing(real: RealJob) -> None:
    def ask(manifest: Manifest) -> SourceFindings:
        return SourceFindings(gone=(f"{SOURCE} ends before {manifest.inputs[SOURCE].end['line']}",))

    found = Verifier(real.backend, check_sources=ask).verify(real.manifest_path(2))
    assert found.reasons == (f"{SOURCE} ends before 200",)
    assert found.faults == ()


def test_condemning_again_changes_nothing(real: RealJob) -> None:
    in_a_page(real, real.files[-1])
    found = Verifier(real.backend).verify(real.manifest_path(2))
    assert condemn(real.backend, found)
    path = real.path(real.backend.paths.condemned(Epoch(2), 0))
    before = path.read_bytes()
    assert not condemn(real.backend, found)
    assert path.read_bytes() == before


def test_the_last_checkpoint_that_could_be_used_is_not_condemned() -> None:
    def found(epoch: int, *faults: str) -> Verification:
        return Verification(
            epoch=Epoch(epoch),
            attempt=0,
            generation=Generation(1),
            faults=faults,
            sources_gone=(),
            unchecked=(),
            went=False,
            files=0,
            bytes=0,
            seconds=0.0,
        )

    one, two = found(1, "bad"), found(2, "bad")
    assert condemnable([one, two], {Epoch(1), Epoch(2), Epoch(3)}) == (one, two)
    assert condemnable([one, two], {Epoch(1), Epoch(2)}) == ()
    assert condemnable([one, found(2)], {Epoch(1), Epoch(2)}) == (one,)


SPARK_TYPES = [
    spark.LongType(),
    spark.IntegerType(),
    spark.ShortType(),
    spark.ByteType(),
    spark.DoubleType(),
    spark.FloatType(),
    spark.StringType(),
    spark.BooleanType(),
    spark.BinaryType(),
    spark.DateType(),
    spark.TimestampType(),
    spark.TimestampNTZType(),
    spark.DecimalType(12, 3),
    spark.ArrayType(spark.StringType()),
    spark.MapType(spark.StringType(), spark.LongType()),
    spark.StructType([spark.StructField("a", spark.ArrayType(spark.DateType()))]),
]


@pytest.mark.parametrize("kind", SPARK_TYPES, ids=lambda kind: kind.simpleString())
def test_every_type_that_spark_writes_is_recognised(kind: spark.DataType) -> None:
    text = spark.StructType([spark.StructField("x", kind)]).json()
    stored = pa.schema([("x", to_arrow_type(kind, timezone="UTC"))])
    sink = pa.BufferOutputStream()
    pq.write_table(stored.empty_table(), sink)
    read = pq.read_schema(pa.BufferReader(sink.getvalue()))
    columns = table_columns(text)
    assert columns["x"] is not None
    assert schema_faults(columns, read) == []
    other = pa.schema([("x", pa.int64() if kind != spark.LongType() else pa.int32())])
    assert len(schema_faults(columns, other)) == 1


def test_an_unknown_type_is_not_verified() -> None:
    columns = table_columns(schema_text({"x": "interval year to month"}))
    assert schema_faults(columns, pa.schema([("x", pa.int64())])) == []
    assert schema_faults(columns, pa.schema([("y", pa.int64())])) != []
