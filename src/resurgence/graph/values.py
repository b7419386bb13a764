"""Values that the parts of a graph share: expressions and columns.

Expressions are Spark SQL text, already bound: every column in them is a column of the operator's
input, every function exists. A `Position` points back into the user's SQL so that a later error can
name the place.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

EVENT_TIME = "__event_time"
"""The hidden column that carries event time from a source to the operators that need it. For rows of
a window it is the window's last microsecond.
"""

PLANNED_AT = "__planned_at"
"""The hidden column that expressions read the planning time of the epoch from. The engine adds it to
the input of every operator whose expressions name it.
"""

CHANGE = "__change"
"""The hidden column of an updating result: 1 for a row that came, -1 for one that went. Over any
number of epochs, the rows that came less those that went are the batch answer so far.
"""


OPERATION = "__operation"
"""The hidden column of a source of keyed changes: `upsert`, `delete` or `truncate`."""

POSITION = "__position"
"""The hidden column that orders keyed changes within an epoch: a record's position in its input."""


class Value(BaseModel):
    """An immutable value that can be written as JSON."""

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
    """Set if the column is not read but computed, over the columns that are."""
    metadata: str | None = None
    """Set if it is not in the record but beside it: what the connector calls it."""
