"""Iceberg tables of a SQL catalog for tests, and data files written as tasks write them."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

from resurgence.connectors.contract import CoveredInput, SourceSpan, StagedFile
from resurgence.connectors.iceberg.catalogs.catalog import CatalogType, IcebergCatalog, TablePlace
from resurgence.connectors.iceberg.writing.data_files import data_access, file_layout
from resurgence.connectors.lakehouse.data_files import as_stored, by_partition
from resurgence.connectors.lakehouse.table_file import TableFile
from resurgence.ids import JobIdentity, OperatorId
from resurgence.storage.object_store import task_store

JOB = JobIdentity("a1b2c3d4e5f6")
SINK = "sink-out"


def opened_catalog(folder: Path) -> IcebergCatalog:
    """The catalog of the table `db.t`, as a new process would open it."""
    return IcebergCatalog(
        TablePlace(
            CatalogType.SQL, f"sqlite:///{folder}/catalog.db", "db", "t", f"file://{folder}/wh"
        )
    )


def catalog_options(folder: Path, table: str = "t") -> dict[str, str]:
    """The options of a table in that catalog."""
    return {
        "namespace": "db",
        "table_name": table,
        "catalog.type": "sql",
        "catalog.sql.uri": f"sqlite:///{folder}/catalog.db",
        "catalog.warehouse": f"file://{folder}/wh",
    }


def covering(epoch: int, lines: int = 10) -> CoveredInput:
    span = SourceSpan(start={"line": (epoch - 1) * lines}, end={"line": epoch * lines})
    return CoveredInput(sources={OperatorId("source-in"): span})


def numbered(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{each}" for each in ids]})


def staged_files(
    table: Table, rows: pa.Table, epoch: int = 1, generation: int = 1, prefix: str = ""
) -> tuple[StagedFile, ...]:
    """Write rows as a task does; under the prefix of an epoch unless another one is given."""
    prefix = prefix or f"resurgence/{SINK}/{JOB}/{epoch:010}-{generation}"
    layout = file_layout(table, tuple(rows.column_names), (), 1 << 20)
    files = []
    for batch in rows.combine_chunks().to_batches():
        for number, (values, part) in enumerate(by_partition(batch, layout.partition_of(batch))):
            file = TableFile(layout.schema, layout.compression)
            file.add(as_stored(part, layout.schema))
            facts = file.finish()
            path = f"{prefix}-{number}.parquet"
            task_store(data_access(table)).create(path, facts.data)
            details = {**layout.describe(facts, values)}
            files.append(
                StagedFile(path=path, rows=facts.rows, bytes=len(facts.data), details=details)
            )
    return tuple(files)


def expire_all_but_newest(table: Table) -> None:
    later = datetime.now() + timedelta(days=1)
    table.maintenance.expire_snapshots().older_than(later).commit()
    assert len(table.refresh().snapshots()) == 1


class _DeleteManifestWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _RowDelta(_FastAppendFiles):
    """A snapshot with a delete file, as merge-on-read writes it; pyiceberg does not."""

    deleting: DataFile

    def _manifests(self) -> list[ManifestFile]:
        spec = self.spec(self._transaction.table_metadata.default_spec_id)
        output = self.new_manifest_output()
        with _DeleteManifestWriter(
            spec, self.schema(), output, self._snapshot_id, self._compression
        ) as writer:
            writer.add(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self._snapshot_id,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=self.deleting,
                )
            )
        return [writer.to_manifest_file(), *super()._manifests()]


def delete_by_position(table: Table, folder: Path, row: int = 0) -> None:
    """Delete a row of the first file by a delete file."""
    (first, *_) = table.scan().plan_files()
    path = folder / f"deletes-{row}.parquet"
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
            pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
        ]
    )
    pq.write_table(
        pa.table({"file_path": [first.file.file_path], "pos": [row]}, schema=schema), path
    )
    deleting = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=path.stat().st_size,
        # So that readers know that it is about one file.
        lower_bounds={2147483546: first.file.file_path.encode()},
        upper_bounds={2147483546: first.file.file_path.encode()},
    )
    deleting.spec_id = table.metadata.default_spec_id
    with table.transaction() as transaction:
        update = _RowDelta(Operation.OVERWRITE, transaction, table.io)
        update.deleting = deleting
        with update:
            pass
