"""The relation of a FROM item: the columns that a query can name, and the operator that produces
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from sqlglot import exp

from resurgence.errors import did_you_mean
from resurgence.ids import OperatorId
from resurgence.sql.syntax.dialect import to_spark
from resurgence.sql.syntax.parse import Script

WINDOW_TYPE = "STRUCT<`start`: TIMESTAMP, `end`: TIMESTAMP>"


_LAST = ("INTERVAL '1' MILLISECOND", "INTERVAL '1' MICROSECOND")
"""Subtracted from a window's end to get its last instant: in Flink, and in Spark."""


class WindowPart(Enum):
    """The part of its row's window that a column holds."""

    WHOLE = "window"
    START = "start"
    END = "end"
    TIME = "time"
    """The last instant of the window: the event time of its rows."""


@dataclass(frozen=True)
class Attribute:
    """A column as the user sees it, and its name in the operator's output.

    The two differ if two columns have the same name, and after a join.
    """

    name: str
    column: str
    type: str | None = None
    table: str | None = None
    """Its qualifier in a query."""
    window: WindowPart | None = None
    outer_window: WindowPart | None = None
    """The part that it holds unless it is null because its side of an outer join has no match."""
    is_event_time: bool = False
    """Whether it is the event time of its row."""
    is_processing_time: bool = False
    """Whether it is the planning time of the epoch that read its row."""
    is_unnamed_window: bool = False
    """Its name is implicit: another column of that name takes precedence."""
    is_hidden: bool = False
    """The planner added it; `*` does not include it."""


class RowKind(Enum):
    """Whether rows are append-only or a changelog, and when they are emitted."""

    APPENDED = "appended"
    """Append-only; emitted as they occur."""
    CLOSED = "closed"
    """Append-only; all rows of a window are emitted in one epoch."""
    UPDATING = "updating"
    """A changelog: inserts and retractions."""


WindowExpression = tuple[tuple[str, ...], WindowPart]
"""Columns or fields as Spark SQL, and the window part that the first one that is not null holds."""


@dataclass(frozen=True)
class Relation:
    """The output of an operator."""

    operator: OperatorId
    attributes: tuple[Attribute, ...]
    has_event_time: bool
    kind: RowKind = RowKind.APPENDED
    width_micros: int | None = None
    """Set if all windows have the same width, so that the start determines the end."""
    unread: tuple[Attribute, ...] = ()
    """Columns that were pruned because no query reads them; used in hints."""
    either: tuple[WindowExpression, ...] = ()
    """After a FULL join: the window parts that coalesce() of columns of both sides holds."""

    @property
    def tables(self) -> list[str]:
        """The qualifiers of the columns."""
        return list(dict.fromkeys(each.table for each in self.attributes if each.table))

    def named(self, table: str | None) -> Relation:
        """Return the relation with one qualifier for all columns."""
        attributes = tuple(replace(each, table=table) for each in self.attributes)
        return replace(self, attributes=attributes)

    def only(self, names: frozenset[str] | None) -> Relation:
        """Return the relation with only the columns of these names, `a` or `t.a`; all if None."""
        if names is None:
            return self
        selected = tuple(
            each
            for each in self.attributes
            if names & {each.name.lower(), f"{each.table}.{each.name}".lower()}
        )
        dropped = (each for each in self.attributes if each not in selected)
        return replace(self, attributes=selected, unread=(*self.unread, *dropped))

    def with_names(self, nodes: Sequence[exp.Expr], script: Script) -> Relation:
        """Return the relation with its columns renamed, in their order."""
        if len(nodes) != len(self.attributes):
            message = f"column list has {len(nodes)} names for {len(self.attributes)} columns"
            raise script.error(nodes[0], message, "Name all columns, in their order.")
        seen: set[str] = set()
        for each in nodes:
            if not isinstance(each, exp.Identifier):
                message = "a column list can contain only names"
                hint = "Write it as in CREATE VIEW v (a, b) AS SELECT ... ."
                raise script.error(each, message, hint)
            if each.name.lower() in seen:
                message = f"the column list contains the name '{each.name}' twice"
                raise script.error(each, message, "Choose another name.")
            seen.add(each.name.lower())
        attributes = tuple(
            replace(each, name=node.name) for each, node in zip(self.attributes, nodes, strict=True)
        )
        return replace(self, attributes=attributes)

    def is_called(self, name: str) -> bool:
        return name.lower() in (each.lower() for each in self.tables)

    def find(self, name: str, table: str | None = None) -> list[Attribute]:
        return [
            each
            for each in self.attributes
            if each.name.lower() == name.lower()
            and (table is None or (each.table or "").lower() == table.lower())
        ]

    def identifies_window(self, attribute: Attribute) -> bool:
        """Return whether rows with equal values in this column belong to the same window."""
        if attribute.window is WindowPart.START:
            return self.width_micros is not None
        return attribute.window is not None

    def window_part(self, sql: str, *, or_null: bool = False) -> WindowPart | None:
        """Return the window part that an expression over the columns holds, if any."""
        found = self.window_expressions(or_null=or_null)
        return next((part for texts, part in found if _coalesced(texts) == sql), None)

    def window_expressions(self, *, or_null: bool = False) -> list[WindowExpression]:
        """Return all expressions that hold a window part. With `or_null`, include those that are
        null if a side of an outer join has no match.
        """
        found = list(self.either)
        for each in self.attributes:
            part = each.window or (each.outer_window if or_null else None)
            if part is not None:
                found.append(((column_sql(each),), part))
            ends = [to_spark(reference(each))] if part is WindowPart.END else []
            if part is WindowPart.WHOLE:
                for field in (WindowPart.START, WindowPart.END):
                    found.append(((to_spark(reference(each, (field.value,))),), field))
                ends = [found[-1][0][0]]
            found += [((f"{end} - {last}",), WindowPart.TIME) for end in ends for last in _LAST]
        return found

    def resolve(self, node: exp.Column, script: Script) -> tuple[Attribute, tuple[str, ...]]:
        """Return the attribute that `a`, `t.a`, `a.field` or `t.a.field` names, and the path of
        fields inside it. Raise SqlError unless there is exactly one.
        """
        parts = [each.name for each in node.parts]
        table = None
        if (
            len(parts) > 1
            and self.is_called(parts[0])
            and (self.find(parts[1], parts[0]) or not self.find(parts[0]))
        ):
            table, parts = parts[0], parts[1:]
        found = self.find(parts[0], table)
        named = [each for each in found if not each.is_unnamed_window]
        found = named or found
        if len(found) > 1:
            raise script.error(
                node,
                f"column '{parts[0]}' is ambiguous: {len(found)} columns have that name",
                "Qualify it with its table, or rename the columns with AS.",
            )
        if not found:
            raise self._unknown(node, parts, table, script)
        attribute, path = found[0], tuple(parts[1:])
        return attribute, _checked_path(node, attribute, path, script)

    def _unknown(
        self, node: exp.Column, parts: list[str], table: str | None, script: Script
    ) -> Exception:
        names = [
            each.name
            for each in (*self.attributes, *self.unread)
            if not each.is_hidden and (table is None or (each.table or "").lower() == table.lower())
        ]
        if len(parts) > 1:
            message = f"'{parts[0]}' is neither a table of this query nor a column"
            return script.error(node, message, did_you_mean(parts[0], [*names, *self.tables]))
        known = [table] if table else self.tables
        where = f" in '{known[0]}'" if len(known) == 1 else ""
        return script.error(
            node, f"there is no column '{parts[0]}'{where}", did_you_mean(parts[0], names)
        )


def reference(attribute: Attribute, path: tuple[str, ...] = ()) -> exp.Expr:
    """Return the attribute as an expression over the operator's output, without a qualifier."""
    names = [exp.to_identifier(each, quoted=True) for each in (attribute.column, *path)]
    return exp.Dot.build(names) if path else exp.Column(this=names[0])


def column_sql(attribute: Attribute) -> str:
    """Return the attribute as Spark SQL text."""
    return to_spark(reference(attribute))


def _coalesced(texts: tuple[str, ...]) -> str:
    return texts[0] if len(texts) == 1 else f"coalesce({', '.join(texts)})"


def _checked_path(
    node: exp.Column, attribute: Attribute, path: tuple[str, ...], script: Script
) -> tuple[str, ...]:
    """Return the path in the spelling of the declared fields, as far as the type is known."""
    spelled: list[str] = []
    kind = exp.DataType.build(attribute.type, dialect="spark") if attribute.type else None
    for name in path:
        if kind is None or kind.this == exp.DType.VARIANT:
            spelled.append(name)
            continue
        if kind.this == exp.DType.ARRAY:  # Spark reads a field of an array of structs as an array.
            return (*spelled, *path[len(spelled) :])
        if kind.this == exp.DType.MAP:
            spelled.append(name)
            kind = kind.expressions[1]
            continue
        fields = {
            each.name.lower(): each for each in kind.expressions if isinstance(each, exp.ColumnDef)
        }
        if kind.this != exp.DType.STRUCT or name.lower() not in fields:
            owner = ".".join([attribute.name, *spelled])
            known = [each.name for each in fields.values()]
            raise script.error(node, f"'{owner}' has no field '{name}'", did_you_mean(name, known))
        field = fields[name.lower()]
        spelled.append(field.name)
        kind = field.kind
    return tuple(spelled)
