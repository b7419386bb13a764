"""Properties of the scalar functions, in one table.

A function that is not in it is deterministic: its value depends only on its arguments, so that it can
be called over any rows, and again in a replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

REPLAY = "a replayed epoch would produce different rows"


@dataclass(frozen=True)
class ScalarFunction:
    """One scalar function."""

    refusal: tuple[str, str] | None = None
    """Why it is not supported, as a clause after its name, and a hint."""
    clock: str | None = None
    """Set if it reads the clock: its result in Spark SQL, where `t` is the planning time. It
    requires append-only rows: a retraction would get another value.
    """
    takes_arguments: bool = False
    """It reads the clock only if it has no arguments."""
    casts_to: exp.DType | None = None
    """The type to which it casts its argument, if that is its only one and a text."""
    type_argument: int | None = None
    """The argument, counted from 0, that names the type of the values that it parses."""


def _refused(reason: str, hint: str) -> ScalarFunction:
    return ScalarFunction(refusal=(f"{reason}: {REPLAY}", hint))


_RANDOM = _refused("returns a random value", "Derive it from columns, as in md5(column).")
_BY_TASK = _refused(
    "depends on how rows are split into tasks", "Number the rows where they are produced."
)
_BY_PLACE = _refused("depends on where the job runs", "Write the value as a constant.")
_JAVA = _refused("calls arbitrary Java code", "Write a Python function and pass it with --udfs.")
_SKETCH = _refused(
    "samples values at random",
    "Use percentile(column, 0.5) or percentile_approx(column, 0.5).",
)
_TIME = ("returns a TIME, a type that is not supported", "Use date_format(now(), 'HH:mm:ss').")
_NOW = ScalarFunction(clock="t")

_DESCRIBED = {
    "gen_random_uuid rand randn random randstr shuffle uniform uuid uuidv4 uuidv7": _RANDOM,
    "input_file_block_length input_file_block_start input_file_name": _BY_TASK,
    "monotonically_increasing_id spark_partition_id": _BY_TASK,
    "current_catalog current_database current_path current_schema": _BY_PLACE,
    "current_user session_user user version": _BY_PLACE,
    "kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float": _SKETCH,
    "java_method reflect try_reflect": _JAVA,
    "current_time localtime": ScalarFunction(refusal=_TIME),
    "clock_timestamp current_timestamp now proctime statement_timestamp": _NOW,
    "transaction_timestamp wallclock": _NOW,
    "curdate current_date today": ScalarFunction(clock="CAST(t AS DATE)"),
    "localtimestamp": ScalarFunction(clock="CAST(t AS TIMESTAMP_NTZ)"),
    "unix_timestamp": ScalarFunction(clock="unix_seconds(t)", takes_arguments=True),
    "date to_date try_to_date": ScalarFunction(casts_to=exp.DType.DATE),
    "timestamp to_timestamp try_to_timestamp": ScalarFunction(casts_to=exp.DType.TIMESTAMP),
    "to_timestamp_ltz": ScalarFunction(casts_to=exp.DType.TIMESTAMP),
    "to_timestamp_ntz": ScalarFunction(casts_to=exp.DType.TIMESTAMPNTZ),
    "from_json from_csv from_xml": ScalarFunction(type_argument=1),
    "variant_get try_variant_get": ScalarFunction(type_argument=2),
}
SCALARS: Mapping[str, ScalarFunction] = {
    name: known for names, known in _DESCRIBED.items() for name in names.split()
}


def scalar_function(name: str) -> ScalarFunction:
    """Return the properties of a function."""
    return SCALARS.get(name, ScalarFunction())
