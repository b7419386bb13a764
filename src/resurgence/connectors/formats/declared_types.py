"""Values of the type that a writer's schema gives them, as values of the type that a table declares.

Fields of records are matched by name; one that is missing is null. Numbers, texts and instants are
converted if no value can be misunderstood; whether a single value fits is checked per record.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from resurgence.connectors.formats.json.values import DEFAULT_UNIT, JsonValue, is_out_of_range

_INSTANT = (TimestampType, TimestampNTZType, DateType)


@dataclass(frozen=True)
class Misfit(Exception):
    """No value of one type is one of the other."""

    have: DataType
    want: DataType

    def __str__(self) -> str:
        return f"{self.have.simpleString()} instead of {self.want.simpleString()}"


@dataclass(frozen=True)
class Conversion:
    """A value in SQL, and SQL that is true where it does not fit; None if it always does."""

    sql: str
    fault: str | None = None


def converted(
    sql: str, have: DataType, want: DataType, unit: str = DEFAULT_UNIT, depth: int = 0
) -> Conversion:
    """Return the conversion of a value. `unit` is that of whole numbers that are instants. Raises
    Misfit.
    """
    match have, want:
        case StructType(), StructType():
            return _struct(sql, have, want, unit, depth)
        case ArrayType(), ArrayType():
            return _array(sql, have, want, unit, depth)
        case MapType(keyType=StringType()), MapType(keyType=StringType()):
            return _map(sql, have, want, unit, depth)
    if isinstance(have, _INSTANT) and isinstance(want, _INSTANT):
        return _instant(sql, have, want)
    if have == want:
        return Conversion(sql)
    return _scalar(sql, have, want, unit)


def _scalar(sql: str, have: DataType, want: DataType, unit: str) -> Conversion:
    is_number = isinstance(have, NumericType)
    if isinstance(want, StringType) and (is_number or isinstance(have, (BooleanType, *_INSTANT))):
        return Conversion(f"CAST({sql} AS STRING)")
    if isinstance(want, NumericType) and is_number:
        return _checked(sql, _number(sql, have, want))
    is_count = isinstance(have, IntegralType) and not isinstance(want, DateType)
    if isinstance(want, _INSTANT) and (isinstance(have, StringType) or is_count):
        text = f"CAST({sql} AS STRING)"
        return _checked(sql, JsonValue(want, text, text, unit).read)
    raise Misfit(have, want)


def _instant(sql: str, have: DataType, want: DataType) -> Conversion:
    """Return the conversion of an instant. A binary format can hold years that Spark SQL cannot
    write, and one of them would be the end of all windows.
    """
    if have != want and isinstance(have, DateType):
        raise Misfit(have, want)
    value = sql if have == want else f"CAST({sql} AS {want.simpleString()})"
    return Conversion(value, f"({sql} IS NOT NULL AND {is_out_of_range(value)})")


def _number(sql: str, have: DataType, want: DataType) -> str:
    value = f"try_cast({sql} AS {want.simpleString()})"
    if isinstance(want, IntegralType | DecimalType) and not isinstance(have, IntegralType):
        # A cast would drop the fraction.
        return f"IF({value} = {sql}, {value}, NULL)"
    return value


def _checked(sql: str, value: str) -> Conversion:
    return Conversion(value, f"({sql} IS NOT NULL AND {value} IS NULL)")


def _struct(sql: str, have: StructType, want: StructType, unit: str, depth: int) -> Conversion:
    members, faults = [], []
    names = {each.name: each for each in have}
    for each in want:
        found = names.get(each.name)
        if found is None:
            members.append(f"CAST(NULL AS {each.dataType.simpleString()}) AS `{each.name}`")
            continue
        member = converted(f"{sql}.`{each.name}`", found.dataType, each.dataType, unit, depth)
        members.append(f"{member.sql} AS `{each.name}`")
        faults += [member.fault] if member.fault else []
    value = f"IF({sql} IS NULL, NULL, struct({', '.join(members)}))"
    return Conversion(value, f"({' OR '.join(faults)})" if faults else None)


def _array(sql: str, have: ArrayType, want: ArrayType, unit: str, depth: int) -> Conversion:
    name = f"item{depth}"
    item = converted(name, have.elementType, want.elementType, unit, depth + 1)
    value = sql if item.sql == name else f"transform({sql}, {name} -> {item.sql})"
    return Conversion(value, f"exists({sql}, {name} -> {item.fault})" if item.fault else None)


def _map(sql: str, have: MapType, want: MapType, unit: str, depth: int) -> Conversion:
    name = f"item{depth}"
    item = converted(name, have.valueType, want.valueType, unit, depth + 1)
    key = f"key{depth}"
    value = sql if item.sql == name else f"transform_values({sql}, ({key}, {name}) -> {item.sql})"
    fault = f"exists(map_values({sql}), {name} -> {item.fault})" if item.fault else None
    return Conversion(value, fault)
