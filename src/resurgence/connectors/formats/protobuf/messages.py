"""Protobuf messages as Arrow columns and back, a batch at a time, by the library ptars.

Spark's own functions need a jar for exactly its version. `ptars` converts whole batches in Rust, so
no message is an object in Python. It fails for a batch in which one message is malformed: such a
batch is halved until the malformed ones are found.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from resurgence.connectors.formats.contract import VALUE
from resurgence.errors import ConfigError, MessageRefused, did_you_mean
from resurgence.spark_tasks import ArrowFunction

RECORD = "record"
"""The column with the fields of a message; null if it is malformed."""
_TOO_BIG_FOR_SPARK = {pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


def require_library() -> None:
    """Raise ConfigError if the library is not installed."""
    if any(importlib.util.find_spec(each) is None for each in ("ptars", "google.protobuf")):
        raise ConfigError(
            "format 'protobuf' requires the packages ptars and protobuf, which are not installed",
            hint="Run `pip install 'resurgence[protobuf]'`, also in the Python of Spark's executors.",
        )


@dataclass(frozen=True)
class MessageType:
    """A type of messages. Travels to Spark tasks."""

    descriptors: bytes
    """A FileDescriptorSet."""
    name: str
    """With its package, as in `shop.Ride`."""

    @classmethod
    def in_file(cls, path: str, name: str) -> MessageType:
        """Read the type from a descriptor file. Raise ConfigError if that is not possible."""
        require_library()
        place = Path(path).expanduser()
        try:
            found = cls(place.read_bytes(), name)
        except OSError as error:
            raise ConfigError(
                f"the descriptor file {place} cannot be read: {error.strerror}",
                hint="Check the option 'protobuf.descriptor_file'.",
            ) from error
        found.require_exists(str(place))
        return found

    def require_exists(self, place: str) -> None:
        """Raise ConfigError unless the descriptors are valid and have the type."""
        from google.protobuf.message import DecodeError

        try:
            known = _messages(self.descriptors)
            _handler(self)
        except KeyError as error:
            raise ConfigError(
                f"there is no message '{self.name}' in {place}",
                hint=did_you_mean(self.name, _messages(self.descriptors)),
            ) from error
        except (DecodeError, TypeError, ValueError) as error:
            raise ConfigError(
                f"{place} is not a complete descriptor file: {error}",
                hint="Create it with `protoc --include_imports --descriptor_set_out=FILE`.",
            ) from error
        assert self.name in known

    @property
    def schema(self) -> pa.Schema:
        """The fields, as types that Spark has."""
        fields = [each.with_type(_portable(each.type)) for each in _handler(self).schema()]
        return pa.schema([each.with_nullable(True) for each in fields])

    @property
    def index(self) -> bytes:
        """The place of the type in its file, as it precedes a message in a registry's wire format."""
        path = _messages(self.descriptors)[self.name]
        if path == (0,):
            return b"\x00"
        return b"".join(_zigzag(each) for each in (len(path), *path))

    def reader(self, names: tuple[str, ...]) -> ArrowFunction:
        """Return a function that replaces VALUE by RECORD, with these fields."""

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield self._with_record(batch, names)

        return read

    def _with_record(self, batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.RecordBatch:
        values = batch.column(VALUE)
        parts = [*_decoded(self, values)]
        schema = self.schema
        types = [schema.field(name) for name in names]
        read = [
            pa.nulls(len(values), pa.struct(types))
            if part is None
            else _record(part, types, values)
            for part, values in parts
        ]
        record = pa.concat_arrays(read) if read else pa.nulls(0, pa.struct(types))
        kept = [name for name in batch.schema.names if name != VALUE]
        columns = [batch.column(name) for name in kept]
        return pa.RecordBatch.from_arrays([*columns, record], [*kept, RECORD])

    def writer(self, names: tuple[str, ...]) -> ArrowFunction:
        """Return a function that replaces the columns by VALUE: the message with these fields."""

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            handler = _handler(self)
            schema = handler.schema()
            for batch in batches:
                # Columns of another type would be omitted without an error.
                fields = [schema.field(name).with_nullable(True) for name in names]
                columns = [batch.column(each.name).cast(each.type) for each in fields]
                _require_representable(_descriptor(self), dict(zip(names, columns, strict=True)))
                rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
                values = handler.record_batch_to_array(rows).cast(pa.binary())
                kept = [name for name in batch.schema.names if name not in names]
                others = [batch.column(name) for name in kept]
                yield pa.RecordBatch.from_arrays([values, *others], [VALUE, *kept])

        return write

    def explain(self, value: bytes) -> str | None:
        """Return why a message is malformed; None if it is not."""
        try:
            _handler(self).array_to_record_batch(pa.array([value], pa.binary()))
        except (ValueError, OverflowError) as error:
            return str(error)
        return None


def _decoded(
    kind: MessageType, values: pa.Array
) -> Iterator[tuple[pa.RecordBatch | None, pa.Array]]:
    """Yield messages in pieces that are decoded, or None for those that are malformed."""
    if len(values) == 0:
        return
    try:
        yield _handler(kind).array_to_record_batch(values), values
    except (ValueError, OverflowError):
        if len(values) == 1:
            yield None, values
            return
        half = len(values) // 2
        yield from _decoded(kind, values.slice(0, half))
        yield from _decoded(kind, values.slice(half))


def _record(batch: pa.RecordBatch, fields: list[pa.Field], values: pa.Array) -> pa.Array:
    columns = [batch.column(each.name).cast(each.type) for each in fields]
    # A null would be decoded as a message without fields.
    return pa.StructArray.from_arrays(columns, fields=fields, mask=values.is_null())


@functools.lru_cache(maxsize=16)
def _handler(kind: MessageType) -> Any:
    from ptars import HandlerPool, PtarsConfig

    descriptor = _descriptor(kind)
    config = PtarsConfig(timestamp_unit="us", enum_repr="string")
    return HandlerPool([descriptor.file], config=config).get_for_message(descriptor)


@functools.lru_cache(maxsize=16)
def _descriptor(kind: MessageType) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString(kind.descriptors).file:
        pool.AddSerializedFile(each.SerializeToString())
    return pool.FindMessageTypeByName(kind.name)


@functools.lru_cache(maxsize=16)
def _messages(descriptors: bytes) -> dict[str, tuple[int, ...]]:
    """Return every type of messages by name, with its place in its file."""
    from google.protobuf import descriptor_pb2

    def listed(package: str, messages: Any, path: tuple[int, ...]) -> Iterator[Any]:
        for number, each in enumerate(messages):
            name = f"{package}.{each.name}" if package else each.name
            yield name, (*path, number)
            yield from listed(name, each.nested_type, (*path, number))

    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
    return {
        name: path for each in files for name, path in listed(each.package, each.message_type, ())
    }


def _portable(kind: pa.DataType) -> pa.DataType:
    """Return a type that Spark has, for one that it may not have."""
    if pa.types.is_struct(kind):
        members = [kind.field(number) for number in range(kind.num_fields)]
        return pa.struct([each.with_type(_portable(each.type)) for each in members])
    if pa.types.is_map(kind):
        return pa.map_(_portable(kind.key_type), _portable(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_portable(kind.value_type)))
    return _TOO_BIG_FOR_SPARK.get(kind, kind)


def _require_representable(descriptor: Any, columns: dict[str, pa.Array]) -> None:
    """Raise UserError for values that would be omitted without an error: unknown names of an enum,
    and nulls in repeated fields.
    """
    for name, column in columns.items():
        field = descriptor.fields_by_name[name]
        if pa.types.is_map(column.type):
            continue
        if pa.types.is_list(column.type):
            column = column.flatten()
            if column.null_count:
                raise MessageRefused(
                    f"the repeated field '{name}' of '{descriptor.full_name}' cannot contain a null",
                    hint="Remove nulls from the array, as in array_compact(column).",
                )
        if field.enum_type is not None:
            known = [each.name for each in field.enum_type.values]
            is_unknown = pc.and_(column.is_valid(), pc.invert(pc.is_in(column, pa.array(known))))
            unknown = column.filter(is_unknown)
            if len(unknown):
                raise MessageRefused(
                    f"'{unknown[0].as_py()}' is not a value of enum '{field.enum_type.full_name}'",
                    hint=did_you_mean(unknown[0].as_py(), known),
                )
        elif pa.types.is_struct(column.type):
            members = {each.name: column.field(each.name) for each in column.type}
            _require_representable(field.message_type, members)


def _zigzag(number: int) -> bytes:
    """Return a number, not negative, as a varint in zigzag encoding."""
    left, found = number << 1, bytearray()
    while True:
        left, low = left >> 7, left & 0x7F
        found.append(low | (0x80 if left else 0))
        if not left:
            return bytes(found)
