"""The data files of an Iceberg table, as the tasks that read them need them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from resurgence.connectors.iceberg.catalogs.store_location import split_location, vended_access
from resurgence.connectors.iceberg.reading.file_reader import FilePiece, ReadColumns, StoredPath
from resurgence.connectors.lakehouse.stored_rows import MissingFile
from resurgence.errors import UserError, did_you_mean
from resurgence.storage.access import StoreAccess

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


def stored_path(location: str) -> StoredPath:
    """Return where a file is, by its location."""
    return StoredPath(*split_location(location))


def name_of(table: Table, location: str) -> str:
    """Return the path of a file, relative to the table if it is inside of it."""
    root = split_location(table.location())[1].rstrip("/")
    return split_location(location)[1].removeprefix(f"{root}/")


def accesses(table: Table, pieces: Iterable[FilePiece]) -> dict[str, StoreAccess]:
    """Return the access to each store that pieces are in."""
    urls = {file.url for each in pieces for file in (each.file, *each.deletes)}
    return {url: vended_access(url, table.io.properties) for url in urls}


def piece_of(
    table: Table,
    file: DataFile,
    deletes: Iterable[DataFile] = (),
    start: int = 0,
    end: int | None = None,
) -> FilePiece:
    """Return rows of a data file. Raise UserError if it cannot be read."""
    from pyiceberg.manifest import DataFileContent, FileFormat

    if file.file_format != FileFormat.PARQUET:
        raise UserError(
            f"Iceberg table {'.'.join(table.name())} has a data file of format"
            f" {file.file_format.value}, which is not supported: {file.file_path}",
            hint="Rewrite the table's files as Parquet.",
        )
    deleting = [*deletes]
    for each in deleting:
        is_by_position = each.content == DataFileContent.POSITION_DELETES
        if not is_by_position or each.file_format != FileFormat.PARQUET:
            raise UserError(
                f"Iceberg table {'.'.join(table.name())} has deletes of a kind that is not supported:"
                f" {each.file_path}",
                hint="Rewrite the table's data files, so that deletes are applied to them.",
            )
    return FilePiece(
        file=stored_path(file.file_path),
        location=file.file_path,
        name=name_of(table, file.file_path),
        start=start,
        end=end,
        shared=_identity_values(table, file),
        deletes=tuple(stored_path(each.file_path) for each in deleting),
    )


def _identity_values(table: Table, file: DataFile) -> dict[int, pa.Scalar]:
    """Return the values of columns that a file need not contain, because it is partitioned by
    them.
    """
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import NestedField

    spec = table.specs()[file.spec_id]
    values: dict[int, pa.Scalar] = {}
    for number, each in enumerate(spec.fields):
        if isinstance(each.transform, IdentityTransform):
            source: NestedField = table.schema().find_field(each.source_id)
            kind = schema_to_pyarrow(source.field_type)
            values[each.source_id] = _scalar(file.partition[number], kind)
    return values


def _scalar(value: object, kind: pa.DataType) -> pa.Scalar:
    """Return a partition value, which is a date or a time as its number."""
    if isinstance(value, int) and pa.types.is_date32(kind):
        return pa.scalar(value, pa.int32()).cast(kind)
    if isinstance(value, int) and (pa.types.is_timestamp(kind) or pa.types.is_time64(kind)):
        return pa.scalar(value, pa.int64()).cast(kind)
    return pa.scalar(value, kind)


def declared_columns(table: Table, wanted: StructType, missing: MissingFile) -> ReadColumns:
    """Return which columns of a table are read, by their declaration. Raise UserError if one is
    missing.
    """
    fields = {each.name.lower(): each for each in table.schema().fields}
    stored = []
    for each in wanted.names:
        if each.lower() not in fields:
            raise UserError(
                f"Iceberg table {'.'.join(table.name())} has no column '{each}'",
                hint=did_you_mean(each, [field.name for field in table.schema().fields])
                or "Declare the columns that it has.",
            )
        stored.append(fields[each.lower()])
    return ReadColumns(
        ids=tuple(each.field_id for each in stored),
        stored=tuple(each.name for each in stored),
        schema=to_arrow_schema(wanted, timezone="UTC"),
        missing=missing,
    )


def own_columns(table: Table) -> StructType:
    """Return the columns of a table as Spark has them."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return from_arrow_schema(schema_to_pyarrow(table.schema()))
