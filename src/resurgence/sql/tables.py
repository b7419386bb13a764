"""CREATE TABLE: the declaration of a source or a sink, checked against what its connector knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from resurgence.errors import did_you_mean
from resurgence.graph.connector_spec import ConnectorSpec, Role
from resurgence.graph.model import Column, WatermarkSpec
from resurgence.graph.secrets import is_masked, reference_fault, shown_value
from resurgence.sql.event_time import EVENT_TIME_FIELD, WATERMARK_FIELD, EventTime, Named
from resurgence.sql.expressions import Expressions
from resurgence.sql.parse import Script
from resurgence.sql.table_columns import TableColumns, attributes
from resurgence.sql.types import spark_type

__all__ = ["Declarations", "Option", "Table", "attributes"]

_EXAMPLE = (
    "as in CREATE TABLE t (a INT) WITH (connector = 'filesystem', path = 'out', type = 'sink')"
)
UNSTRUCTURED = "json.unstructured"
"""Set to true, a record is not taken apart: its text is the column `value`."""
_FIXED_OPTIONS = {
    "framing.method": ("newline", "a record is a line", "leave it out"),
    "json.timestamp_format": (
        "rfc3339",
        "timestamps in JSON are ISO 8601",
        "read numbers as BIGINT, with a TIMESTAMP beside it that is"
        " GENERATED ALWAYS AS (timestamp_millis(column))",
    ),
    "json.include_schema": ("false", "records have no schema in them", "leave it out"),
    "json.confluent_schema_registry": ("false", "there is no schema registry", "leave it out"),
}
"""Options of a format with the one value that they may have here."""


@dataclass(frozen=True)
class Table:
    """A declared table in its one role. A sink without columns takes those of its input."""

    name: str
    role: Role
    connector: str
    options: dict[str, str]
    columns: tuple[Column, ...] | None
    watermark: WatermarkSpec | None = None
    primary_key: tuple[str, ...] = ()
    """By these columns rows are told apart. A sink that only appends has no use for it."""


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
        nodes = tuple(schema.expressions) if schema else ()
        written = TableColumns(nodes, connector, role, self.expressions)
        columns = written.columns(named)
        watermark = self._watermark(written, columns, self._time_fields(options))
        self._drop_harmless(connector, role, options)
        self._check_unstructured(columns, options)
        return Table(
            name=named.name,
            role=role,
            connector=connector.name,
            options=self._checked_options(create, connector, role, options),
            columns=columns or None,
            watermark=watermark,
            primary_key=written.primary_key(columns),
        )

    def plain_columns(self, create: exp.Create) -> tuple[Column, ...]:
        """The columns of a table without a connector: names and types, and nothing more."""
        if not isinstance(create.this, exp.Schema):
            raise self.script.error(create, "a table needs a connector, or columns", _EXAMPLE)
        columns = []
        for each in create.this.expressions:
            plain = isinstance(each, exp.ColumnDef) and each.kind is not None
            if not plain or any(
                not isinstance(item.kind, exp.NotNullColumnConstraint)
                for item in each.args.get("constraints") or []
            ):
                message = "a table without a connector has columns with a name and a type only"
                raise self.script.error(each, message, _EXAMPLE)
            columns.append(Column(name=each.name, type=spark_type(each.kind, self.script)))
        return tuple(columns)

    def _watermark(
        self, written: TableColumns, columns: tuple[Column, ...], fields: dict[str, Named]
    ) -> WatermarkSpec | None:
        clauses = written.watermarks()
        if written.role is Role.SINK:
            for clause in clauses:
                raise self.script.error(clause, "a sink has no WATERMARK", "leave it out")
            for each in fields.values():
                raise self.script.error(each.node, "a sink has no event time", "leave it out")
            return None
        default = written.connector.roles[written.role].event_time
        return EventTime(columns, default, self.expressions).watermark(clauses, fields)

    def _time_fields(self, options: dict[str, Option]) -> dict[str, Named]:
        keys = [each for each in (EVENT_TIME_FIELD, WATERMARK_FIELD) if each in options]
        found = {key: options.pop(key) for key in keys}
        return {key: Named(each.value, each.node) for key, each in found.items()}

    def _drop_harmless(
        self, connector: ConnectorSpec, role: Role, options: dict[str, Option]
    ) -> None:
        """Options that may say what is so anyway, and nothing else."""
        for key, (only, reason, hint) in _FIXED_OPTIONS.items():
            if key not in options or key in connector.roles[role].options:
                continue
            option = options.pop(key)
            if option.value.lower() != only:
                raise self.script.error(
                    option.node, f"{key} = '{option.value}' is not supported: {reason}", hint
                )

    def _check_unstructured(self, columns: tuple[Column, ...], options: dict[str, Option]) -> None:
        option = options.get(UNSTRUCTURED)
        if option is None or option.value != "true":
            return
        read = [each for each in columns if each.generated is None]
        if [(each.name.lower(), each.type) for each in read] != [("value", "STRING")]:
            raise self.script.error(
                option.node,
                "a table of unstructured JSON reads one column, value TEXT or value JSON",
                "declare that one; more can be made of it with GENERATED ALWAYS AS",
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
        others = ["type", *([EVENT_TIME_FIELD, WATERMARK_FIELD] if role is Role.SOURCE else [])]
        for option in options.values():
            if option.key not in known:
                message = f"connector '{connector.name}' as a {role} has no option '{option.key}'"
                hint = did_you_mean(option.key, [*known, *others])
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
