"""CREATE TABLE: the declaration of a source or a sink, checked against what its connector knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from resurgence.errors import SqlError, did_you_mean
from resurgence.graph.connector_spec import ConnectorSpec, Role, RoleSpec
from resurgence.graph.model import Column, WatermarkSpec
from resurgence.graph.secrets import is_masked, reference_fault, shown_value
from resurgence.ids import OperatorId
from resurgence.sql.expressions import Expressions
from resurgence.sql.intervals import interval_micros
from resurgence.sql.parse import Script
from resurgence.sql.relation import Attribute, Relation, column_sql
from resurgence.sql.types import spark_type

_EXAMPLE = (
    "as in CREATE TABLE t (a INT) WITH (connector = 'filesystem', path = 'out', type = 'sink')"
)


@dataclass(frozen=True)
class Table:
    """A declared table in its one role. A sink without columns takes those of its input."""

    name: str
    role: Role
    connector: str
    options: dict[str, str]
    columns: tuple[Column, ...] | None
    watermark: WatermarkSpec | None = None


@dataclass(frozen=True)
class Option:
    """One option as written."""

    key: str
    value: str
    node: exp.Expr


@dataclass(frozen=True)
class Declarations:
    """Reads CREATE TABLE statements."""

    expressions: Expressions
    connectors: Mapping[str, ConnectorSpec]
    script: Script = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "script", self.expressions.script)

    def table(self, create: exp.Create) -> Table:
        """The table that the statement declares."""
        schema = create.this if isinstance(create.this, exp.Schema) else None
        named = schema.this if schema else create.this
        options = self._options(create)
        connector = self._connector(create, options)
        role = self._role(create, connector, options)
        spec = connector.roles[role]
        columns = self._columns(schema, spec, named)
        return Table(
            name=named.name,
            role=role,
            connector=connector.name,
            options=self._checked_options(create, connector, role, options),
            columns=columns or None,
            watermark=self._watermark(schema, role, spec, columns),
        )

    def _options(self, create: exp.Create) -> dict[str, Option]:
        options: dict[str, Option] = {}
        properties = create.args.get("properties")
        for each in properties.expressions if properties else []:
            if type(each) is not exp.Property:
                raise self.script.error(
                    each, "this clause of CREATE TABLE is not supported", _EXAMPLE
                )
            key = each.this.name.lower()
            if key in options:
                raise self.script.error(
                    each, f"option '{key}' is given twice", "leave one of them out"
                )
            options[key] = Option(key, self._option_value(each), each)
        return options

    def _option_value(self, node: exp.Property) -> str:
        value = node.args.get("value")
        if isinstance(value, exp.Literal):
            return value.name
        if isinstance(value, exp.Boolean):
            return "true" if value.this else "false"
        if isinstance(value, exp.Neg) and isinstance(value.this, exp.Literal):
            return f"-{value.this.name}"
        raise self.script.error(
            node, f"option '{node.this.name}' needs a text in single quotes or a number"
        )

    def _connector(self, create: exp.Create, options: dict[str, Option]) -> ConnectorSpec:
        option = options.pop("connector", None)
        if option is None:
            raise self.script.error(create, "a table needs a connector", _EXAMPLE)
        if option.value not in self.connectors:
            hint = did_you_mean(option.value, self.connectors)
            raise self.script.error(option.node, f"there is no connector '{option.value}'", hint)
        return self.connectors[option.value]

    def _role(
        self, create: exp.Create, connector: ConnectorSpec, options: dict[str, Option]
    ) -> Role:
        option = options.pop("type", None)
        if option is None:
            if len(connector.roles) == 1:
                return next(iter(connector.roles))
            raise self.script.error(
                create,
                f"connector '{connector.name}' can be a source and a sink; the table must say which",
                "add type = 'source' or type = 'sink'",
            )
        try:
            role = Role(option.value)
        except ValueError as error:
            message = f"type must be 'source' or 'sink', not '{option.value}'"
            raise self.script.error(
                option.node, message, did_you_mean(option.value, Role)
            ) from error
        if role not in connector.roles:
            only = " and ".join(sorted(connector.roles))
            message = f"connector '{connector.name}' cannot be a {role}"
            raise self.script.error(option.node, message, f"it can be a {only}")
        return role

    def _checked_options(
        self, create: exp.Create, connector: ConnectorSpec, role: Role, options: dict[str, Option]
    ) -> dict[str, str]:
        known = connector.roles[role].options
        for option in options.values():
            if option.key not in known:
                message = f"connector '{connector.name}' as a {role} has no option '{option.key}'"
                hint = did_you_mean(option.key, [*known, "type"])
                raise self.script.error(option.node, message, hint)
            if fault := reference_fault(option.key, option.value):
                raise self.script.error(option.node, *fault)
            choices = known[option.key].choices
            # A text on record may be masked; it compiles, and is refused where a connector is made.
            is_legal = choices is None or option.value in choices
            if choices is not None and not is_legal and not is_masked(option.key, option.value):
                shown = shown_value(option.key, option.value)
                message = f"'{shown}' is no value for option '{option.key}'"
                raise self.script.error(option.node, message, did_you_mean(option.value, choices))
        for key, spec in known.items():
            if spec.required and key not in options:
                message = f"connector '{connector.name}' as a {role} needs the option '{key}'"
                raise self.script.error(create, message, f"add {key} = '...' to WITH (...)")
        defaults = {key: spec.default for key, spec in known.items() if spec.default is not None}
        return {**defaults, **{each.key: each.value for each in options.values()}}

    def _columns(
        self, schema: exp.Schema | None, spec: RoleSpec, named: exp.Expr
    ) -> tuple[Column, ...]:
        columns: dict[str, Column] = {}
        for node in schema.expressions if schema else []:
            if isinstance(node, exp.WatermarkColumnConstraint):
                continue
            column = self._column(node)
            if column.name.lower() in columns:
                raise self.script.error(node, f"column '{column.name}' is declared twice")
            columns[column.name.lower()] = self._fixed(node, column, spec)
        if not columns and spec.fixed_columns is not None:
            return spec.fixed_columns
        if not columns and spec.needs_columns:
            message = f"table '{named.name}' needs columns"
            raise self.script.error(
                named, message, f"declare them, as in {named.name} (a INT, b TEXT)"
            )
        return tuple(columns.values())

    def _column(self, node: exp.Expr) -> Column:
        if not isinstance(node, exp.ColumnDef) or node.kind is None:
            raise self.script.error(
                node, f"column '{node.name}' needs a type", f"as in {node.name} TEXT"
            )
        nullable = True
        for each in node.constraints:
            if not isinstance(each.kind, exp.NotNullColumnConstraint):
                raise self.script.error(
                    each, "computed columns are not supported yet", "compute it in a view"
                )
            nullable = bool(each.kind.args.get("allow_null"))
        if node.name.startswith("__") or "`" in node.name:
            raise self.script.error(
                node,
                f"the name '{node.name}' cannot be used",
                "names that begin with '__' are reserved, and a name has no backquote",
            )
        return Column(name=node.name, type=spark_type(node.kind, self.script), nullable=nullable)

    def _fixed(self, node: exp.Expr, column: Column, spec: RoleSpec) -> Column:
        """A generator makes its columns itself: the declaration may pick among them, not change
        them.
        """
        if spec.fixed_columns is None:
            return column
        fixed = {each.name.lower(): each for each in spec.fixed_columns}
        found = fixed.get(column.name.lower())
        if found is None:
            hint = did_you_mean(column.name, [each.name for each in fixed.values()])
            raise self.script.error(node, f"the connector has no column '{column.name}'", hint)
        if found.type != column.type:
            message = (
                f"column '{found.name}' of this connector has type {found.type}, not {column.type}"
            )
            raise self.script.error(node, message, f"declare it as {found.type}")
        return found

    def _watermark(
        self, schema: exp.Schema | None, role: Role, spec: RoleSpec, columns: tuple[Column, ...]
    ) -> WatermarkSpec | None:
        clauses = [
            each
            for each in (schema.expressions if schema else [])
            if isinstance(each, exp.WatermarkColumnConstraint)
        ]
        if len(clauses) > 1:
            raise self.script.error(
                clauses[1], "a table has one WATERMARK", "leave one of them out"
            )
        if clauses and role is Role.SINK:
            raise self.script.error(clauses[0], "a sink has no WATERMARK", "leave it out")
        by_name = {each.name.lower(): each for each in columns}
        if not clauses:
            default = (
                by_name.get(spec.event_time.lower())
                if spec.event_time and role is Role.SOURCE
                else None
            )
            if default is None:
                return None
            column = column_sql(Attribute(default.name, default.name))
            return WatermarkSpec(
                event_time=default.name,
                sql=f"{column} - INTERVAL '1' SECOND",
                delay_micros=1_000_000,
            )
        clause = clauses[0]
        named = by_name.get(clause.this.name.lower())
        if named is None:
            hint = did_you_mean(clause.this.name, [each.name for each in columns])
            raise self.script.error(clause.this, f"there is no column '{clause.this.name}'", hint)
        if named.type != "TIMESTAMP":
            message = f"event time must be a TIMESTAMP, and '{named.name}' is of type {named.type}"
            raise self.script.error(clause.this, message, "declare the column as TIMESTAMP")
        row = Relation(OperatorId(""), attributes(columns), has_event_time=False)
        return WatermarkSpec(
            event_time=named.name,
            sql=self.expressions.sql(clause.expression, row),
            delay_micros=self._delay_micros(clause.expression.unnest(), named.name),
        )

    def _delay_micros(self, expression: exp.Expr, event_time: str) -> int | None:
        """How far an expression stays behind event time, if it is of that form."""
        is_late = isinstance(expression, exp.Sub)
        column = expression.this.unnest() if is_late else expression
        if not isinstance(column, exp.Column) or column.name.lower() != event_time.lower():
            return None
        try:
            return interval_micros(expression.expression, self.script) if is_late else 0
        except SqlError:
            return None


def attributes(columns: tuple[Column, ...]) -> tuple[Attribute, ...]:
    """Declared columns as a query sees them."""
    return tuple(Attribute(name=each.name, column=each.name, type=each.type) for each in columns)
