"""Whether a table still has the columns and the partitioning that staged output was written for. Pure.

Others may replace both between the stage and the commit of an epoch. Delta would accept the files:
values of columns that the table no longer has would never be read, and values of another type, or
files without the partition values of the table, would make it unreadable.

The columns are in the details of the first file that an `INSERT` stages, because a partitioned epoch
has many files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pydantic import JsonValue
from pyspark.sql.types import StructField

from resurgence.connectors.contract import StagedFile, StagedOutput
from resurgence.connectors.delta.columns import TableShape
from resurgence.connectors.delta.file_details import PARTITION
from resurgence.errors import UserError

_COLUMNS = "columns"


def with_columns(staged: StagedOutput, shape: TableShape, names: Sequence[str]) -> StagedOutput:
    """Return staged output that names its columns as the table has them."""
    if not staged.files:
        return staged
    first, *others = staged.files
    written = {each.lower() for each in names}
    texts: dict[str, JsonValue] = {
        each.name: _text(each) for each in shape.schema if each.name.lower() in written
    }
    noted = first.model_copy(update={"details": {**first.details, _COLUMNS: texts}})
    return staged.model_copy(update={"files": (noted, *others)})


def require_as_staged(shape: TableShape, files: Sequence[StagedFile]) -> None:
    """Raise UserError if a table has changed since these files were staged, so that it cannot have
    their rows any more. Columns that were added do not matter.
    """
    for each in files:
        columns, partition = each.details.get(_COLUMNS), each.details.get(PARTITION)
        if isinstance(columns, dict):
            _require_columns(shape, columns)
        if isinstance(partition, dict) and partition.keys() != {*shape.partition_columns}:
            now, before = _listed(shape.partition_columns), _listed(partition)
            raise _changed(shape, f"it is partitioned by {now}, and was by {before}")


def _require_columns(shape: TableShape, columns: Mapping[str, JsonValue]) -> None:
    stored = {each.name: each for each in shape.schema}
    for name, text in columns.items():
        if name not in stored:
            raise _changed(shape, f"it has no column '{name}' any more")
        now = _text(stored.pop(name))
        # A column that may be null now can have what it could not.
        if text not in (now, f"{now} NOT NULL"):
            raise _changed(shape, f"its column '{name}' is {now}, and was {text}")
    for each in stored.values():
        if not each.nullable:
            raise _changed(shape, f"it requires a value in column '{each.name}'")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


def _text(column: StructField) -> str:
    return column.dataType.simpleString() + ("" if column.nullable else " NOT NULL")


def _changed(shape: TableShape, reason: str) -> UserError:
    return UserError(
        f"{shape.place} was changed by somebody else while an epoch was not committed yet: {reason}",
        hint="Change it back and start the job again, or roll the job back to its last committed"
        " epoch, so that the rows are written anew.",
    )
