"""The format `protobuf`: one message per record, of a type in a descriptor file, with or without the
prefix of a schema registry.

Messages name their fields by number, so one descriptor reads all compatible versions of a schema. A
registry adds a prefix: the id of the schema, and which message of its file a record is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType

from resurgence.connectors.contract import BAD_POSITION
from resurgence.connectors.formats.contract import (
    VALUE,
    Fault,
    Format,
    RecordReader,
    RecordTable,
    RecordWriter,
    WriteSettings,
)
from resurgence.connectors.formats.declared_types import Conversion, Misfit, converted
from resurgence.connectors.formats.json.lines import MISFIT
from resurgence.connectors.formats.json.values import DEFAULT_UNIT, data_type, declared_units
from resurgence.connectors.formats.protobuf.messages import RECORD, MessageType
from resurgence.connectors.formats.record_columns import (
    NO_METADATA,
    RECORD_POSITION_SQL,
    carried,
    declared_values,
)
from resurgence.connectors.formats.schema_registry import (
    PREFIX_BYTES,
    SchemaRegistry,
    SchemaRegistryOptions,
    binary_literal,
    prefix,
    schema_id,
)
from resurgence.connectors.formats.text_records import NO_VALUE
from resurgence.errors import UserError, did_you_mean
from resurgence.graph.connector_spec import FormatSpec
from resurgence.graph.table_options import option
from resurgence.graph.values import Column


class ProtobufOptions(SchemaRegistryOptions):
    """The options of a table of Protobuf messages."""

    descriptor_file: str = option(
        "a file that `protoc --include_imports --descriptor_set_out=FILE` has written",
        name="protobuf.descriptor_file",
    )
    message: str = option(
        "the type of the messages with its package, as in `shop.Ride`", name="protobuf.message"
    )

    def message_type(self) -> MessageType:
        return MessageType.in_file(self.descriptor_file, self.message)


@dataclass(frozen=True)
class ProtobufReader(RecordReader):
    """Reads the declared columns of a table by the names of fields."""

    columns: tuple[Column, ...]
    kind: MessageType
    units: Mapping[str, str] = field(default_factory=dict)
    """The unit, by column, of whole numbers in TIMESTAMP columns."""
    registry: SchemaRegistry | None = None

    def check(self) -> None:
        _require_fields(self.kind, [each.name for each in self._own])
        if self.registry is not None:
            self.registry.check()

    def parse(
        self, records: DataFrame, metadata: Mapping[str, SparkColumn] = NO_METADATA
    ) -> DataFrame:
        known, _ = carried(self.columns, metadata)
        placed = records.select("position", *known, F.expr(f"{self._message} AS {VALUE}"))
        kept = [each for each in placed.schema if each.name != VALUE]
        names = tuple(each.name for each in self._own)
        shape = StructType([*kept, StructField(RECORD, self._shape)])
        read = placed.mapInArrow(self.kind.reader(names), shape)
        values = declared_values(self.columns, lambda each: self._values[each.name].sql)
        return read.select(*values, self._bad_position, F.expr(RECORD_POSITION_SQL))

    def explain(self, raw: bytes | None) -> Fault:
        if raw is None:
            return NO_VALUE
        if self.registry is not None:
            if schema_id(raw) is None:
                return Fault("does not begin with the id of a schema")
            raw = raw[PREFIX_BYTES:]
            if not raw.startswith(self.kind.index):
                return Fault(f"not a message of type '{self.kind.name}'")
            raw = raw[len(self.kind.index) :]
        reason = self.kind.explain(raw)
        return Fault(MISFIT if reason is None else reason)

    @cached_property
    def _own(self) -> list[Column]:
        """The columns that are in a message."""
        return [each for each in self.columns if each.metadata is None]

    @cached_property
    def _shape(self) -> StructType:
        """The fields to read, as Spark's types."""
        _require_fields(self.kind, [each.name for each in self._own])
        whole = from_arrow_schema(self.kind.schema)
        return StructType([whole[each.name] for each in self._own])

    @property
    def _message(self) -> str:
        """SQL for the message in a record; null if the record does not contain one."""
        if self.registry is None:
            return VALUE
        begin, index = PREFIX_BYTES + 1, self.kind.index
        is_ours = (
            f"substring({VALUE}, 1, 1) = X'00' AND"
            f" substring({VALUE}, {begin}, {len(index)}) = {binary_literal(index)}"
        )
        return f"IF({is_ours}, substring({VALUE}, {begin + len(index)}), NULL)"

    @cached_property
    def _values(self) -> dict[str, Conversion]:
        return {
            each.name: _conversion(
                f"{RECORD}.`{each.name}`",
                self._shape[each.name],
                StructField(each.name, data_type(each.type)),
                self.units.get(each.name, DEFAULT_UNIT),
            )
            for each in self._own
        }

    @cached_property
    def _bad_position(self) -> SparkColumn:
        faults = [f"{RECORD} IS NULL"]
        for each in self._own:
            value = self._values[each.name]
            faults += [f"coalesce({value.fault}, false)"] if value.fault else []
            faults += [] if each.nullable else [f"{value.sql} IS NULL"]
        return F.expr(f"IF({' OR '.join(faults)}, position, NULL) AS `{BAD_POSITION}`")


@dataclass(frozen=True)
class ProtobufWriter(RecordWriter):
    """Writes rows as messages. A null is a field that is not set."""

    kind: MessageType
    passed: tuple[str, ...] = ()
    registry: SchemaRegistry | None = None

    def check(self) -> None:
        if self.registry is not None:
            self.registry.check()

    def render(self, rows: DataFrame) -> DataFrame:
        written = [each for each in rows.schema if each.name not in self.passed]
        names = tuple(each.name for each in written)
        _require_fields(self.kind, names)
        shape = from_arrow_schema(self.kind.schema)
        values = [_written(each, shape[each.name]) for each in written]
        passed = [each for each in rows.schema if each.name in self.passed]
        rows = rows.selectExpr(*values, *(f"`{each.name}`" for each in passed))
        encoded = StructType([StructField(VALUE, BinaryType()), *passed])
        messages = rows.mapInArrow(self.kind.writer(names), encoded)
        if self.registry is None:
            return messages
        begin = prefix(self.registry.latest().id) + self.kind.index
        value = f"concat({binary_literal(begin)}, {VALUE}) AS {VALUE}"
        return messages.selectExpr(value, *(f"`{each.name}`" for each in passed))


def _written(have: StructField, want: StructField) -> str:
    """Return SQL for a column as its field is written; it fails for a value that does not fit."""
    found = _conversion(f"`{have.name}`", have, want, DEFAULT_UNIT)
    if found.fault is None:
        return f"{found.sql} AS `{have.name}`"
    reason = f"a value of column {have.name} does not fit its field in the Protobuf message"
    fault = f"coalesce({found.fault}, false)"
    return f"IF({fault}, raise_error('{reason}'), {found.sql}) AS `{have.name}`"


def _conversion(sql: str, have: StructField, want: StructField, unit: str) -> Conversion:
    try:
        return converted(sql, have.dataType, want.dataType, unit)
    except Misfit as misfit:
        raise UserError(
            f"column '{have.name}' and its field in the Protobuf message differ in type: {misfit}",
            hint="Change the type of the column.",
        ) from misfit


def _require_fields(kind: MessageType, names: list[str] | tuple[str, ...]) -> None:
    known = kind.schema.names
    for each in names:
        if each not in known:
            raise UserError(
                f"message '{kind.name}' has no field '{each}'", hint=did_you_mean(each, known)
            )


def _reader(table: RecordTable[ProtobufOptions]) -> RecordReader:
    options = table.format_options
    return ProtobufReader(
        table.columns,
        options.message_type(),
        declared_units(table.options, table.columns),
        options.registry(table.subject),
    )


def _writer(settings: WriteSettings[ProtobufOptions]) -> RecordWriter:
    options = settings.format_options
    return ProtobufWriter(
        options.message_type(), settings.passed, options.registry(settings.subject)
    )


PROTOBUF = Format(
    FormatSpec("protobuf", source_options=ProtobufOptions, sink_options=ProtobufOptions),
    reader=_reader,
    writer=_writer,
)
