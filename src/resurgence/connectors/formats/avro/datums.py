"""The format `avro`: one Avro datum per record, with or without a schema registry.

Without a registry, all records have the same schema. With one, a record begins with the id of its
schema, and records of any version of the subject may occur in an epoch: each is parsed by its own
schema. The versions are listed when an epoch is read, which is after it was planned, so the schema
of every record in it has been registered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated

from pydantic import AfterValidator
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.types import StructField, StructType

from resurgence.connectors.contract import BAD_POSITION
from resurgence.connectors.formats.avro.schemas import END, derived_schema, envelope, is_record
from resurgence.connectors.formats.contract import (
    VALUE,
    Fault,
    Format,
    RecordReader,
    RecordTable,
    RecordWriter,
    WriteSettings,
)
from resurgence.connectors.formats.declared_types import Misfit, converted
from resurgence.connectors.formats.json.values import DEFAULT_UNIT, data_type, declared_units
from resurgence.connectors.formats.record_columns import (
    NO_METADATA,
    RECORD_POSITION_SQL,
    carried,
    declared_values,
)
from resurgence.connectors.formats.schema_registry import (
    ENDPOINT,
    PREFIX_BYTES,
    SchemaRegistry,
    SchemaRegistryOptions,
    binary_literal,
    prefix,
    schema_id,
)
from resurgence.connectors.formats.text_records import NO_VALUE
from resurgence.errors import ConfigError, UserError
from resurgence.graph.connector_spec import FormatSpec
from resurgence.graph.table_options import option
from resurgence.graph.values import Column

_SCHEMA = "avro.schema"
_KIND = "AVRO"


def _record_schema(text: str) -> str:
    if not is_record(text):
        raise ValueError("not the schema of a record")
    return text


class AvroOptions(SchemaRegistryOptions):
    """The options of a table of Avro."""

    avro_schema: Annotated[str, AfterValidator(_record_schema)] | None = option(
        "the schema of the records, as JSON or as in `${file:/path/rides.avsc}`; by default it is"
        " derived from the columns",
        default=None,
        name=_SCHEMA,
        hint="Use the JSON of a schema of type record.",
    )


@dataclass(frozen=True)
class _Version:
    """A schema that records may have. `id` is None if they do not begin with it."""

    id: int | None
    text: str


@dataclass(frozen=True)
class _Parsing:
    """How records of several versions are parsed."""

    parsed: tuple[SparkColumn, ...]
    """The record by each version; null if it has another one."""
    values: tuple[SparkColumn, ...]
    bad_position: SparkColumn


@dataclass(frozen=True)
class AvroReader(RecordReader):
    """Reads the declared columns of a table by their names."""

    columns: tuple[Column, ...]
    units: Mapping[str, str] = field(default_factory=dict)
    """The unit, by column, of whole numbers without a logical type in TIMESTAMP columns."""
    schema: str | None = None
    """The schema of all records; by default, the one that the columns have."""
    registry: SchemaRegistry | None = None
    known_ids: frozenset[int | None] | None = None
    """In tasks: the ids of the subject's schemas."""
    _parsings: dict[tuple[_Version, ...], _Parsing] = field(default_factory=dict, repr=False)
    """Spark's SQL parser is slow, so the expressions are cached for the next epoch."""

    def check(self) -> None:
        if self.registry is not None:
            self.registry.check()

    def parse(
        self, records: DataFrame, metadata: Mapping[str, SparkColumn] = NO_METADATA
    ) -> DataFrame:
        versions = self._versions()
        if versions not in self._parsings:
            self._parsings[versions] = self._parsing(records, versions)
        parsing = self._parsings[versions]
        known, _ = carried(self.columns, metadata)
        parsed = records.select("position", *known, *parsing.parsed)
        return parsed.select(*parsing.values, parsing.bad_position, F.expr(RECORD_POSITION_SQL))

    def explain(self, raw: bytes | None) -> Fault:
        if raw is None:
            return NO_VALUE
        if self.registry is None:
            return Fault("not a record of the table's Avro schema, or a value does not fit")
        number = schema_id(raw)
        if number is None:
            hint = f"Remove '{ENDPOINT}' if records are plain Avro."
            return Fault("does not begin with the id of a schema", hint=hint)
        if number in self._ids():
            return Fault(f"not a record of schema {number}, or a value does not fit its column")
        return Fault(f"schema {number} is not a version of subject '{self.registry.subject}'")

    def for_tasks(self) -> RecordReader:
        return replace(self, known_ids=self._ids(), _parsings={})

    def _ids(self) -> frozenset[int | None]:
        if self.known_ids is not None:
            return self.known_ids
        return frozenset(each.id for each in self._versions())

    def _versions(self) -> tuple[_Version, ...]:
        if self.registry is None:
            return (_Version(None, self.schema or derived_schema(self._declared, "record")),)
        schemas = [each for each in self.registry.schemas() if each.kind == _KIND]
        for each in schemas:
            if not is_record(each.text):
                raise UserError(
                    f"schema {each.id} of subject '{self.registry.subject}' is not a record",
                    hint="Use format = 'raw_bytes', or records with fields.",
                )
        return tuple(_Version(each.id, each.text) for each in schemas)

    @cached_property
    def _declared(self) -> StructType:
        """The columns that are in a record."""
        own = [each for each in self.columns if each.metadata is None]
        return StructType([StructField(each.name, data_type(each.type)) for each in own])

    def _parsing(self, records: DataFrame, versions: Sequence[_Version]) -> _Parsing:
        parsed = [_parsed(each).alias(f"parsed_{number}") for number, each in enumerate(versions)]
        shapes = [each.dataType for each in records.select(*parsed).schema] if parsed else []
        cases: dict[str, list[str]] = {each.name: [] for each in self._declared}
        faults: list[str] = []
        for number, (version, shape) in enumerate(zip(versions, shapes, strict=True)):
            assert isinstance(shape, StructType)
            record = shape["record"].dataType
            assert isinstance(record, StructType)
            for name, sql, fault in self._converted(f"parsed_{number}.record", record, version):
                cases[name].append(f"WHEN {_is_read(number)} THEN {sql}")
                faults += [f"{_is_read(number)} AND {fault}"] if fault else []
        values = {
            each.name: f"CASE {' '.join(cases[each.name])} END"
            if cases[each.name]
            else f"CAST(NULL AS {each.dataType.simpleString()})"
            for each in self._declared
        }
        is_any = " OR ".join(_is_read(number) for number in range(len(versions))) or "false"
        faults.append(f"NOT ({is_any})")
        faults += [
            f"{values[each.name]} IS NULL"
            for each in self.columns
            if each.metadata is None and not each.nullable
        ]
        condition = " OR ".join(f"coalesce({each}, false)" for each in faults)
        return _Parsing(
            tuple(parsed),
            tuple(declared_values(self.columns, lambda column: values[column.name])),
            F.expr(f"IF({condition}, position, NULL) AS `{BAD_POSITION}`"),
        )

    def _converted(
        self, record: str, shape: StructType, version: _Version
    ) -> list[tuple[str, str, str | None]]:
        """Return name, value and fault of each declared column that a version has."""
        found = []
        for each in self._declared:
            if each.name not in shape.names:
                continue
            unit = self.units.get(each.name, DEFAULT_UNIT)
            have = shape[each.name].dataType
            try:
                value = converted(f"{record}.`{each.name}`", have, each.dataType, unit)
            except Misfit as misfit:
                place = "the Avro schema" if version.id is None else f"schema {version.id}"
                raise UserError(
                    f"column '{each.name}' is of another type in {place}: {misfit}",
                    hint="Change the type of the column.",
                ) from misfit
            found.append((each.name, value.sql, value.fault))
        return found


def _parsed(version: _Version) -> SparkColumn:
    """Return the record in its envelope; null if it has another version."""
    value = VALUE if version.id is None else f"substring({VALUE}, {PREFIX_BYTES + 1})"
    wrapped = F.expr(f"concat({value}, {binary_literal(END)})")
    parsed = from_avro(wrapped, envelope(version.text), {"mode": "PERMISSIVE"})
    if version.id is None:
        return parsed
    begin = binary_literal(prefix(version.id))
    return F.when(F.expr(f"substring({VALUE}, 1, {PREFIX_BYTES}) = {begin}"), parsed)


def _is_read(number: int) -> str:
    return f"coalesce(parsed_{number}.end = {binary_literal(END)}, false)"


@dataclass(frozen=True)
class AvroWriter(RecordWriter):
    """Writes rows as Avro records."""

    settings: WriteSettings[AvroOptions]
    registry: SchemaRegistry | None = None

    def check(self) -> None:
        if self.registry is not None:
            self.registry.check()

    def render(self, rows: DataFrame) -> DataFrame:
        fields = [each for each in rows.schema if each.name not in self.settings.passed]
        schema = self.settings.format_options.avro_schema
        if schema is None:
            schema = derived_schema(fields, self.settings.subject or "record")
        value = to_avro(F.struct(*(F.col(f"`{each.name}`") for each in fields)), schema)
        if self.registry is not None:
            begin = prefix(self.registry.register(_KIND, schema))
            value = F.concat(F.lit(begin), value)
        passed = [F.col(f"`{each}`") for each in self.settings.passed]
        return rows.select(value.alias(VALUE), *passed)


def _reader(table: RecordTable[AvroOptions]) -> RecordReader:
    options = table.format_options
    registry = options.registry(table.subject)
    if registry is not None and options.avro_schema is not None:
        raise ConfigError(
            f"'{_SCHEMA}' and '{ENDPOINT}' exclude each other in a source: the schema of a record"
            " is in the registry",
            hint="Remove one of them.",
        )
    units = declared_units(table.options, table.columns)
    return AvroReader(table.columns, units, options.avro_schema, registry)


def _writer(settings: WriteSettings[AvroOptions]) -> RecordWriter:
    return AvroWriter(settings, settings.format_options.registry(settings.subject))


AVRO = Format(
    FormatSpec("avro", source_options=AvroOptions, sink_options=AvroOptions),
    reader=_reader,
    writer=_writer,
    jars=("avro",),
)
