"""Data files of an Iceberg table: how tasks write and describe them, and how a commit adds them.

What a commit needs besides the path, rows and bytes of a file is its `details`: the partition, the
specs by number, and the statistics of its columns. They are JSON, because a checkpoint stores them;
values are in Iceberg's binary form.

The functions for tasks hold their schema as JSON. So it is parsed once in a process.
"""

from __future__ import annotations

import functools
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import JsonValue

from resurgence.connectors.contract import StagedFile
from resurgence.connectors.iceberg.catalogs.store_location import split_location, vended_access
from resurgence.connectors.iceberg.columns import stored_order
from resurgence.connectors.lakehouse.data_files import (
    FileLayout,
    PartitionValues,
    SortField,
    unpartitioned,
)
from resurgence.connectors.lakehouse.table_file import FileFacts
from resurgence.errors import SinkError
from resurgence.storage.access import StoreAccess

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")


@functools.lru_cache(16)
def _schema(text: str) -> Schema:
    from pyiceberg.schema import Schema

    return Schema.model_validate_json(text)


@functools.lru_cache(16)
def _spec(text: str) -> PartitionSpec:
    from pyiceberg.partitioning import PartitionSpec

    return PartitionSpec.model_validate_json(text)


@dataclass(frozen=True)
class Partitioner:
    """Returns the partition of each row. Runs in tasks."""

    schema: str
    spec: str

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        schema, spec = _schema(self.schema), _spec(self.spec)
        columns = []
        for each in spec.fields:
            source = schema.find_field(each.source_id)
            values = rows.column(source.name).cast(schema_to_pyarrow(source.field_type))
            columns.append(each.transform.pyarrow_transform(source.field_type)(values))
        return pa.RecordBatch.from_arrays(columns, [each.name for each in spec.fields])


@dataclass(frozen=True)
class Describer:
    """Returns the details of a file. Runs in tasks."""

    schema: str
    spec: str
    properties: tuple[tuple[str, str], ...]
    """Those of the table, which choose the statistics."""
    root: str
    """The location under which the file is."""
    sort_order: int

    def __call__(self, facts: FileFacts, values: PartitionValues) -> Mapping[str, JsonValue]:
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )

        schema, spec = _schema(self.schema), _spec(self.spec)
        statistics = data_file_statistics_from_parquet_metadata(
            facts.metadata,
            compute_statistics_plan(schema, dict(self.properties)),
            parquet_path_to_id_mapping(schema),
        ).to_serialized_dict()
        return {
            "root": self.root,
            "spec": spec.spec_id,
            "sort_order": self.sort_order,
            "partition": [
                _partition_text(schema, field, value)
                for field, value in zip(spec.fields, values, strict=True)
            ],
            "rows": statistics["record_count"],
            "split_offsets": statistics["split_offsets"],
            **{name: {str(k): v for k, v in statistics[name].items()} for name in _COUNTS},
            **{name: {str(k): _text(v) for k, v in statistics[name].items()} for name in _BOUNDS},
        }


def _partition_text(schema: Schema, field: PartitionField, value: object) -> str | None:
    from pyiceberg.conversions import to_bytes
    from pyiceberg.partitioning import partition_record_value

    if value is None:
        return None
    return _text(
        to_bytes(_result_type(schema, field), partition_record_value(field, value, schema))
    )


def _result_type(schema: Schema, field: PartitionField) -> Any:
    return field.transform.result_type(schema.find_field(field.source_id).field_type)


def _text(value: bytes) -> str:
    return b64encode(value).decode()


def file_layout(
    table: Table, written: tuple[str, ...], sorted_by: tuple[SortField, ...], target_bytes: int
) -> FileLayout:
    """Return how rows with these columns become data files of a table."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    schema, spec = table.schema().model_dump_json(), table.spec().model_dump_json()
    order = table.sort_order()
    is_ordered = sorted_by and sorted_by == table_order(table)
    describe = Describer(
        schema,
        spec,
        tuple(sorted(table.properties.items())),
        data_location(table),
        order.order_id if is_ordered else 0,
    )
    return FileLayout(
        stored_order(schema_to_pyarrow(table.schema()), written),
        describe,
        unpartitioned if table.spec().is_unpartitioned() else Partitioner(schema, spec),
        sorted_by,
        target_bytes,
    )


def table_order(table: Table) -> tuple[SortField, ...]:
    """Return the sort order of a table; none if it is not by columns alone, or places nulls in
    another way than Spark.
    """
    from pyiceberg.table.sorting import NullOrder, SortDirection
    from pyiceberg.transforms import IdentityTransform

    found = []
    for each in table.sort_order().fields:
        is_descending = each.direction is SortDirection.DESC
        nulls = NullOrder.NULLS_LAST if is_descending else NullOrder.NULLS_FIRST
        if not isinstance(each.transform, IdentityTransform) or each.null_order is not nulls:
            return ()
        found.append(SortField(table.schema().find_field(each.source_id).name, is_descending))
    return tuple(found)


def data_location(table: Table) -> str:
    """Return the location under which data files of a table are created."""
    return table.properties.get("write.data.path", f"{table.location().rstrip('/')}/data")


def data_access(table: Table) -> StoreAccess:
    """Return the access to the folder of a table's data files."""
    url, path = split_location(data_location(table))
    return vended_access(f"{url.rstrip('/')}/{path}", table.io.properties)


def added_file(table: Table, file: StagedFile) -> DataFile:
    """Return a data file as the table's metadata has it."""
    from pyiceberg.conversions import from_bytes
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    details: Any = file.details
    try:
        spec = table.specs()[details["spec"]]
        schema = table.schema()
        values = [
            None if text is None else from_bytes(_result_type(schema, field), b64decode(text))
            for field, text in zip(spec.fields, details["partition"], strict=True)
        ]
        counts: Any = {name: {int(k): v for k, v in details[name].items()} for name in _COUNTS}
        bounds: Any = {
            name: {int(k): b64decode(v) for k, v in details[name].items()} for name in _BOUNDS
        }
        added = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=location_of(file),
            file_format=FileFormat.PARQUET,
            partition=Record(*values),
            record_count=details["rows"],
            file_size_in_bytes=file.bytes,
            sort_order_id=details["sort_order"],
            equality_ids=None,
            key_metadata=None,
            split_offsets=details["split_offsets"],
            **counts,
            **bounds,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SinkError(
            f"the record of data file {file.path} is damaged",
            hint="Restore the records of the sink from a backup.",
        ) from error
    added.spec_id = spec.spec_id
    return added


def location_of(file: StagedFile) -> str:
    """Return where a staged file is, as the table's metadata has it."""
    return f"{file.details['root']}/{file.path}"


def needs_rewrite(table: Table, file: StagedFile) -> bool:
    """Return whether a staged file cannot be added as it is: only its first rows are wanted, or the
    table is partitioned in another way by now.
    """
    return file.rows != file.details["rows"] or file.details["spec"] != table.spec().spec_id
