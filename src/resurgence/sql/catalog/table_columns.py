"""The columns of a CREATE TABLE: types, constraints, and columns computed when a source is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from sqlglot import exp

from resurgence.errors import did_you_mean
from resurgence.graph.connector_spec import ConnectorSpec, Role
from resurgence.graph.values import PLANNED_AT, Column, Expression
from resurgence.ids import OperatorId
from resurgence.sql.catalog.relation import Attribute, Relation, RowKind
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.syntax.dialect import MetadataColumnConstraint
from resurgence.sql.syntax.parse import Script
from resurgence.sql.syntax.types import spark_type

_COLUMN_PARTS = frozenset({"this", "kind", "constraints"})
K = TypeVar("K", bound=exp.Expr)


@dataclass(frozen=True)
class TableColumns:
    """The column list of one CREATE TABLE."""

    nodes: tuple[exp.Expr, ...]
    connector: ConnectorSpec
    role: Role
    expressions: Expressions
    is_changelog: bool = False

    @property
    def script(self) -> Script:
        return self.expressions.script

    def columns(self, named: exp.Expr) -> tuple[Column, ...]:
        """Return the declared columns, or the fixed columns of a generator."""
        for node in self.nodes:
            self._refuse_unread(node)
        spec = self.connector.roles[self.role]
        columns: dict[str, Column] = {}
        for node in self._definitions():
            column = self._column(node)
            if column.name.lower() in columns:
                raise self.script.error(node, f"column '{column.name}' is declared twice")
            columns[column.name.lower()] = column
        if not columns and spec.fixed_columns is not None:
            return spec.fixed_columns
        if not columns and spec.needs_columns:
            raise self.script.error(
                named,
                f"table '{named.name}' needs columns",
                f"Declare them, as in {named.name} (a INT, b TEXT).",
            )
        computed = {name: self._expression(name) for name in columns}
        read = tuple(each for name, each in columns.items() if computed[name] is None)
        for name, expression in computed.items():
            if expression is not None:
                columns[name] = self._generated(expression, columns[name], read)
        return tuple(columns.values())

    def primary_key(self, columns: tuple[Column, ...]) -> tuple[str, ...]:
        """Return the names of the columns that identify a row."""
        known = {each.name.lower(): each.name for each in columns}
        keys: list[tuple[exp.Expr, list[exp.Expr]]] = []
        for node in self.nodes:
            constraint = node.expressions[0] if isinstance(node, exp.Constraint) else node
            if isinstance(constraint, exp.PrimaryKey):
                keys.append((node, constraint.expressions))
            elif isinstance(node, exp.ColumnDef) and _constraint(
                node, exp.PrimaryKeyColumnConstraint
            ):
                keys.append((node, [node.this]))
        if len(keys) > 1:
            raise self.script.error(
                keys[1][0],
                "a table can have only one PRIMARY KEY",
                "Name all its columns in one, as in PRIMARY KEY (a, b).",
            )
        named = [part for _, parts in keys for part in parts]
        for part in named:
            if part.name.lower() not in known:
                hint = did_you_mean(part.name, list(known.values()))
                raise self.script.error(part, f"there is no column '{part.name}'", hint)
        return tuple(known[part.name.lower()] for part in named)

    def watermarks(self) -> list[exp.WatermarkColumnConstraint]:
        """Return the WATERMARK clauses as written."""
        return [each for each in self.nodes if isinstance(each, exp.WatermarkColumnConstraint)]

    def _definitions(self) -> list[exp.Expr]:
        beside = (exp.WatermarkColumnConstraint, exp.PrimaryKey, exp.Constraint)
        return [each for each in self.nodes if not isinstance(each, beside)]

    def _refuse_unread(self, node: exp.Expr) -> None:
        """Raise SqlError for what the parser reads and nothing here does: it must not be ignored."""
        if isinstance(node, exp.ColumnDef):
            self._refuse_column_parts(node)
        key = node.expressions[0] if isinstance(node, exp.Constraint) else node
        if isinstance(node, exp.Constraint) and (
            len(node.expressions) > 1 or not isinstance(key, exp.PrimaryKey)
        ):
            message = "CONSTRAINT accepts only PRIMARY KEY (columns)"
            raise self.script.error(node, message, "Remove the rest.")
        if isinstance(key, exp.PrimaryKey):
            options = [str(each).upper() for each in key.args.get("options") or []]
            index = key.args.get("include")
            if (index and any(index.args.values())) or set(options) - {"NOT ENFORCED"}:
                message = "PRIMARY KEY (columns) accepts only NOT ENFORCED after it"
                raise self.script.error(node, message, "Remove the rest.")

    def _refuse_column_parts(self, node: exp.ColumnDef) -> None:
        kinds = [each.kind for each in node.constraints]
        for number, kind in enumerate(kinds):
            if isinstance(kind, exp.WatermarkColumnConstraint):
                message = f"WATERMARK is not part of column '{node.name}'"
                raise self.script.error(kind, message, "Put a comma before WATERMARK.")
            if any(type(each) is type(kind) for each in kinds[:number]):
                message = f"column '{node.name}' has a repeated or a contradictory clause"
                raise self.script.error(node, message, "Remove one of them.")
        unread = [key for key, value in node.args.items() if value and key not in _COLUMN_PARTS]
        if unread:
            message = f"the clause after the type of column '{node.name}' is not supported"
            raise self.script.error(node, message, "Declare the columns in their order.")

    def _column(self, node: exp.Expr) -> Column:
        computed = _constraint(node, exp.ComputedColumnConstraint)
        if not isinstance(node, exp.ColumnDef) or (node.kind is None and computed is None):
            raise self.script.error(
                node, f"column '{node.name}' needs a type", f"Write it as in {node.name} TEXT."
            )
        if node.name.startswith("__") or "`" in node.name:
            raise self.script.error(
                node,
                f"the name '{node.name}' is reserved or contains a backquote",
                "Choose a name that does not begin with '__' and contains no backquote.",
            )
        null = _constraint(node, exp.NotNullColumnConstraint)
        is_never_null = computed is not None and bool(computed.args.get("not_null"))
        column = Column(
            name=node.name,
            type=spark_type(node.kind, self.script) if node.kind else "",
            nullable=not is_never_null and (null is None or bool(null.args.get("allow_null"))),
        )
        if metadata := _constraint(node, MetadataColumnConstraint):
            return self._metadata(metadata, node, column)
        if computed is not None:
            if self.role is not Role.SOURCE:
                role = "sink" if self.role is Role.SINK else "lookup table"
                raise self.script.error(
                    computed, f"a {role} cannot compute columns", "Compute it in the SELECT."
                )
            return column
        return self._fixed(node, column)

    def _metadata(
        self, metadata: MetadataColumnConstraint, node: exp.ColumnDef, column: Column
    ) -> Column:
        """Return a column of metadata, which the connector provides beside the record."""
        known, key = self.connector.roles[self.role].metadata, metadata.name
        if key not in known:
            message = f"connector '{self.connector.name}' as a {self.role} has no metadata '{key}'"
            hint = did_you_mean(key, known) if known else "Remove the column."
            raise self.script.error(metadata, message, hint)
        if known[key] != column.type:
            message = f"metadata '{key}' has type {known[key]}, not {column.type}"
            raise self.script.error(node, message, f"Declare it as {known[key]}.")
        if _constraint(node, exp.ComputedColumnConstraint):
            message = f"column '{column.name}' cannot be both metadata and computed"
            raise self.script.error(node, message, "Remove one of them.")
        return column.model_copy(update={"metadata": key})

    def _fixed(self, node: exp.Expr, column: Column) -> Column:
        """Return the connector's own column. The declaration can select columns of a generator,
        but not change them.
        """
        fixed_columns = self.connector.roles[self.role].fixed_columns
        if fixed_columns is None:
            return column
        fixed = {each.name.lower(): each for each in fixed_columns}
        found = fixed.get(column.name.lower())
        if found is None:
            hint = did_you_mean(column.name, [each.name for each in fixed.values()])
            message = f"connector '{self.connector.name}' has no column '{column.name}'"
            raise self.script.error(node, message, hint)
        kind = node.args.get("kind")
        is_unsigned = isinstance(kind, exp.DataType) and kind.this == exp.DType.UBIGINT
        if is_unsigned and found.type == "BIGINT":
            # Arroyo's type for counters. The connector casts to the declared type.
            return found.model_copy(update={"type": column.type})
        if found.type != column.type:
            message = (
                f"column '{found.name}' of this connector has type {found.type}, not {column.type}"
            )
            raise self.script.error(node, message, f"Declare it as {found.type}.")
        return found

    def _expression(self, name: str) -> exp.Expr | None:
        """Return the expression of a computed column; None for any other."""
        for node in self._definitions():
            if isinstance(node, exp.ColumnDef) and node.name.lower() == name:
                computed = _constraint(node, exp.ComputedColumnConstraint)
                return computed.this if computed else None
        return None

    def _generated(self, node: exp.Expr, column: Column, read: tuple[Column, ...]) -> Column:
        for each in node.find_all(exp.Column):
            name = each.parts[0].name.lower()
            if name not in {one.name.lower() for one in read} and self._expression(name):
                raise self.script.error(
                    each,
                    f"computed column '{column.name}' refers to computed column '{each.name}'",
                    "Write its expression here.",
                )
        kind = RowKind.UPDATING if self.is_changelog else RowKind.APPENDED
        row = Relation(OperatorId(""), attributes(read), has_event_time=False, kind=kind)
        generated = Expression(
            name=column.name,
            sql=self.expressions.sql(node.unnest(), row),
            position=self.script.position(node),
        )
        return column.model_copy(update={"generated": generated})


def computed_sql(column: Column) -> str:
    """Return the value of a computed column as Spark SQL over the columns that are read."""
    assert column.generated is not None
    name = column.name.replace("\\", "\\\\").replace("'", "\\'")
    fault = f"raise_error('{name} is computed, NOT NULL, and has no value')"
    value = column.generated.sql
    if column.type:
        value, fault = (f"CAST({each} AS {column.type})" for each in (value, fault))
    return value if column.nullable else f"coalesce({value}, {fault})"


def attributes(columns: tuple[Column, ...]) -> tuple[Attribute, ...]:
    """Return declared columns as attributes of a relation."""
    return tuple(
        Attribute(
            name=each.name,
            column=each.name,
            type=each.type or None,
            is_processing_time=is_processing_time(each),
        )
        for each in columns
    )


def is_processing_time(column: Column) -> bool:
    """Return whether a column is PROCTIME()."""
    return column.generated is not None and column.generated.sql == f"`{PLANNED_AT}`"


def _constraint(node: exp.Expr, kind: type[K]) -> K | None:
    if not isinstance(node, exp.ColumnDef):
        return None
    return next((each.kind for each in node.constraints if isinstance(each.kind, kind)), None)
