"""Values that all parts of a graph use: expressions and columns.

Expressions are bound Spark SQL: every column in them is a column of the operator's input, and every
function exists. A `Position` refers to the user's SQL so that a later error can name the place.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

EVENT_TIME = "__event_time"
"""The hidden column with the event time of a row. For rows of a window it is the window's last
microsecond.
"""

PLANNED_AT = "__planned_at"
"""The hidden column with the planning time of the epoch. The engine adds it to the input of every
operator whose expressions name it.
"""

CHANGE = "__change"
"""The hidden column of a changelog: 1 for an insert, -1 for a retraction. Over any number of
epochs, the inserts minus the retractions are the batch result so far.
"""


OPERATION = "__operation"
"""The hidden column of a source of keyed changes: `upsert`, `delete` or `truncate`."""

POSITION = "__position"
"""The hidden column that orders keyed changes within an epoch: a record's position in its input."""


class Value(BaseModel):
    """An immutable value that can be serialised as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Position(Value):
    """A place in the user's SQL, counted from 1."""

    line: int
    column: int


class Expression(Value):
    """A named expression in Spark SQL over the columns of the operator's input."""

    name: str
    sql: str
    position: Position | None = None


class Column(Value):
    """A declared column: a name and a Spark SQL type."""

    name: str
    type: str
    """Empty if the column is computed and has the type of its expression."""
    nullable: bool = True
    generated: Expression | None = None
    """The expression of a computed column, over the columns that are read."""
    metadata: str | None = None
    """The connector's key of a metadata column, which is not part of the record."""
