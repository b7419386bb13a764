"""CREATE TABLE: the declaration of a source, a sink or a lookup table, checked against the spec of
its connector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from resurgence.errors import SqlError, did_you_mean
from resurgence.graph.connector_spec import ConnectorSpec, FormatSpec, Role, RoleSpec
from resurgence.graph.specs.source import WatermarkSpec
from resurgence.graph.table_options import (
    BAD_DATA,
    FORMAT,
    TIMESTAMP_FORMAT,
    TIMESTAMP_UNIT,
    UNSTRUCTURED,
    OptionSpec,
)
from resurgence.graph.values import Column
from resurgence.secrets import has_references, is_masked, reference_fault
from resurgence.sql.catalog.table_columns import TableColumns, attributes
from resurgence.sql.planner.event_time import EVENT_TIME_FIELD, WATERMARK_FIELD, EventTime, Named
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.syntax.clauses import clause_name
from resurgence.sql.syntax.intervals import interval_micros
from resurgence.sql.syntax.parse import Script
from resurgence.sql.syntax.types import spark_type

__all__ = ["Declarations", "Option", "Table", "attributes"]

_EXAMPLE = (
    "Write it as in CREATE TABLE t (a INT) WITH (connector = 'filesystem', path = 'out',"
    " type = 'sink')."
)
_LOOKUP_EXAMPLE = (
    "Write it as in CREATE TEMPORARY TABLE t (id BIGINT, name TEXT)"
    " WITH (connector = 'filesystem', path = 'names')."
)
LOOKUP_TTL = "lookup.cache.ttl"
"""How long a lookup table is cached before it is read again."""
_LOOKUP_TTL_MICROS = 60_000_000
IDLE_TIMEOUT = "idle_timeout"
MAX_FUTURE = "max_future"
"""How far event time can be ahead of an epoch's planning time; a row beyond is a bad record."""
_FIXED_OPTIONS = {
    "framing.method": ("newline", "each record is a line", "Remove it."),
    TIMESTAMP_FORMAT: (
        "rfc3339",
        "timestamps in JSON are ISO 8601",
        "Read numbers as BIGINT, and add a TIMESTAMP column that is"
        " GENERATED ALWAYS AS (timestamp_millis(column)).",
    ),
    "json.include_schema": ("false", "records contain no schema", "Remove it."),
    "json.confluent_schema_registry": ("false", "there is no schema registry", "Remove it."),
}
"""Format options with their only supported value, the reason and a hint."""


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
    """The columns that identify a row. An append-only sink ignores them."""
    idle_micros: int | None = None
    """Of a source: after this long without rows, it does not hold back the watermark."""
    max_future_micros: int | None = None
    """Of a source: a row whose event time is farther ahead of the planning time is a bad record."""
    ttl_micros: int = 0
    """Of a lookup table: how long it is cached before it is read again."""
    format: FormatSpec | None = None

    @property
    def is_changelog(self) -> bool:
        """Whether its records are changes."""
        return self.format is not None and self.format.is_changelog

    @property
    def uses_keys(self) -> bool:
        """Whether its format uses the PRIMARY KEY."""
        return self.format is not None and self.format.uses_keys


@dataclass(frozen=True)
class Option:
    """One option as written."""

    key: str
    value: str
    node: exp.Expr


@dataclass(frozen=True)
class Declarations:
    """The reader of CREATE TABLE statements."""

    expressions: Expressions
    connectors: Mapping[str, ConnectorSpec]
    script: Script = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "script", self.expressions.script)

    def table(self, create: exp.Create) -> Table:
        """Return the table that the statement declares."""
        schema = create.this if isinstance(create.this, exp.Schema) else None
        named = schema.this if schema else create.this
        options = self._options(create)
        connector = self._connector(create, options)
        role = (
            self._lookup_role(create, connector, options)
            if is_temporary(create)
            else self._role(create, connector, options)
        )
        nodes = tuple(schema.expressions) if schema else ()
        chosen = self._format(connector, role, options)
        is_changelog = chosen is not None and chosen.is_changelog
        written = TableColumns(nodes, connector, role, self.expressions, is_changelog)
        columns = written.columns(named)
        watermark = self._watermark(written, columns, self._time_fields(options))
        ttl_micros = self._ttl_micros(options) if role is Role.LOOKUP else 0
        idle_micros = max_future_micros = None
        if role is Role.SOURCE:
            idle_micros = self._interval_option(options, IDLE_TIMEOUT)
            self._check_max_future(connector, chosen, watermark, options)
            max_future_micros = self._interval_option(options, MAX_FUTURE)
        known = connector.roles[role].known_options(chosen)
        self._read_timestamp_format(known, options)
        self._drop_harmless(connector.roles[role], known, options)
        self._check_unstructured(columns, options)
        if chosen is not None and chosen.only_column is not None:
            self._check_only_column(columns, chosen, chosen.only_column, role, named)
        keys = written.primary_key(columns)
        if chosen is not None and is_changelog:
            node = options[FORMAT].node if FORMAT in options else create
            self._check_metadata(columns, chosen, node)
            if role is Role.SOURCE and chosen.uses_keys:
                self._check_keys(columns, keys, node)
        return Table(
            name=named.name,
            role=role,
            connector=connector.name,
            options=self._checked_options(
                create, connector.name, connector.roles[role], known, options, columns
            ),
            columns=columns or None,
            watermark=watermark,
            primary_key=keys,
            ttl_micros=ttl_micros,
            idle_micros=idle_micros,
            max_future_micros=max_future_micros,
            format=chosen,
        )

    def plain_columns(self, create: exp.Create) -> tuple[Column, ...]:
        """Return the columns of a table without a connector, which have only a name and a type."""
        if not isinstance(create.this, exp.Schema):
            raise self.script.error(create, "a table needs a connector or columns", _EXAMPLE)
        columns = []
        for each in create.this.expressions:
            plain = isinstance(each, exp.ColumnDef) and each.kind is not None
            if not plain or any(
                not isinstance(item.kind, exp.NotNullColumnConstraint)
                for item in each.args.get("constraints") or []
            ):
                message = "a column of a table without a connector can have only a name and a type"
                raise self.script.error(each, message, _EXAMPLE)
            columns.append(Column(name=each.name, type=spark_type(each.kind, self.script)))
        return tuple(columns)

    def _watermark(
        self, written: TableColumns, columns: tuple[Column, ...], fields: dict[str, Named]
    ) -> WatermarkSpec | None:
        clauses = written.watermarks()
        if written.role is not Role.SOURCE:
            kind = "sink" if written.role is Role.SINK else "lookup table"
            for clause in clauses:
                raise self.script.error(clause, f"a {kind} cannot have a WATERMARK", "Remove it.")
            for each in fields.values():
                raise self.script.error(each.node, f"a {kind} cannot have event time", "Remove it.")
            return None
        default = written.connector.roles[written.role].event_time
        return EventTime(columns, default, self.expressions).watermark(clauses, fields)

    def _time_fields(self, options: dict[str, Option]) -> dict[str, Named]:
        keys = [each for each in (EVENT_TIME_FIELD, WATERMARK_FIELD) if each in options]
        found = {key: options.pop(key) for key in keys}
        return {key: Named(each.value, each.node) for key, each in found.items()}

    def _format(
        self, connector: ConnectorSpec, role: Role, options: dict[str, Option]
    ) -> FormatSpec | None:
        """Return the format of a table; None if it has none, or an unknown one (refused later)."""
        option = options.get(FORMAT)
        return connector.roles[role].format_named(option.value if option is not None else None)

    def _read_timestamp_format(
        self, known: Mapping[str, OptionSpec], options: dict[str, Option]
    ) -> None:
        """Normalise an option for timestamps in milliseconds; a source has `timestamp_unit`."""
        option = options.get(TIMESTAMP_FORMAT)
        if option is None or option.value.lower().replace("_", "") != "unixmillis":
            return
        if TIMESTAMP_UNIT in known:
            del options[TIMESTAMP_FORMAT]
            options.setdefault(TIMESTAMP_UNIT, Option(TIMESTAMP_UNIT, "millis", option.node))
        elif TIMESTAMP_FORMAT in known:
            options[TIMESTAMP_FORMAT] = Option(TIMESTAMP_FORMAT, "unix_millis", option.node)

    def _drop_harmless(
        self, role: RoleSpec, known: Mapping[str, OptionSpec], options: dict[str, Option]
    ) -> None:
        """Remove options that have their only supported value; raise SqlError for any other."""
        for key, (only, reason, hint) in _FIXED_OPTIONS.items():
            if key not in options:
                continue
            is_only = options[key].value.lower() == only
            if not is_only and (key in known or role.formats_with(key)):
                continue
            option = options.pop(key)
            if not is_only:
                raise self.script.error(
                    option.node, f"{key} = '{option.value}' is not supported: {reason}", hint
                )

    def _check_unstructured(self, columns: tuple[Column, ...], options: dict[str, Option]) -> None:
        option = options.get(UNSTRUCTURED)
        if option is None or option.value != "true":
            return
        read = [each for each in columns if each.generated is None and each.metadata is None]
        if [(each.name.lower(), each.type) for each in read] != [("value", "STRING")]:
            raise self.script.error(
                option.node,
                "unstructured JSON requires one column, value TEXT or value JSON",
                "Declare only that one. Derive others from it with GENERATED ALWAYS AS.",
            )

    def _check_only_column(
        self,
        columns: tuple[Column, ...],
        chosen: FormatSpec,
        kind: str,
        role: Role,
        node: exp.Expr,
    ) -> None:
        """Raise SqlError unless a record can be the only value of a table. A sink without columns
        is checked when its rows are known.
        """
        read = [each for each in columns if each.generated is None and each.metadata is None]
        is_source = role is Role.SOURCE
        if (is_source or read) and [each.type for each in read] != [kind]:
            raise self.script.error(
                node,
                f"format '{chosen.name}' requires one column, of type {kind}",
                "Declare only that one. Derive others from it with GENERATED ALWAYS AS."
                if is_source
                else "Write only that one.",
            )

    def _check_metadata(
        self, columns: tuple[Column, ...], chosen: FormatSpec, node: exp.Expr
    ) -> None:
        named = [each for each in columns if each.metadata is not None]
        if named:
            raise self.script.error(
                node,
                f"{chosen.name} records have no metadata, because a retraction would have that of"
                " another record",
                f"Remove the column '{named[0].name}'.",
            )

    def _check_keys(
        self, columns: tuple[Column, ...], keys: tuple[str, ...], node: exp.Expr
    ) -> None:
        """Raise SqlError unless records contain the key: changes are applied by it."""
        for each in columns:
            if each.name in keys and each.generated is not None:
                message = f"column '{each.name}' is computed and cannot be in the PRIMARY KEY"
                hint = "Name columns that the records have."
                raise self.script.error(node, message, hint)
            if each.name in keys and each.type.upper().startswith("MAP"):
                message = f"column '{each.name}' of type {each.type} cannot be in the PRIMARY KEY"
                raise self.script.error(node, message, "Name a column of a scalar type.")

    def _options(self, create: exp.Create) -> dict[str, Option]:
        options: dict[str, Option] = {}
        properties = create.args.get("properties")
        for each in properties.expressions if properties else []:
            if isinstance(each, exp.TemporaryProperty):
                continue
            if type(each) is not exp.Property:
                message = f"{clause_name('properties', each)} is not supported in CREATE TABLE"
                raise self.script.error(each, message, _EXAMPLE)
            key = each.this.name.lower()
            if key in options:
                raise self.script.error(
                    each, f"option '{key}' is specified twice", "Remove one of them."
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
        if isinstance(value, exp.Column) and _is_plain_name(value):
            return value.name
        if isinstance(value, exp.Array) and value.expressions:
            names = value.expressions
            if all(isinstance(each, exp.Literal) or _is_plain_name(each) for each in names):
                return ", ".join(each.name for each in names)
        if isinstance(value, exp.Interval) and isinstance(value.this, exp.Literal):
            unit = value.args.get("unit")
            if unit is None or isinstance(unit, exp.Var):
                return f"{value.this.name} {unit.name.lower() if unit else ''}".strip()
        raise self.script.error(
            node,
            f"option '{node.this.name}' needs a text or a number",
            f"Write it in single quotes: {node.this.name} = '...'.",
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
        roles = [each for each in connector.roles if each is not Role.LOOKUP]
        if not roles or (option is not None and option.value == Role.LOOKUP):
            message = "a lookup table must be TEMPORARY"
            if not roles:
                message = f"connector '{connector.name}' is for lookup tables, which are TEMPORARY"
            node = option.node if option is not None else create
            raise self.script.error(node, message, _LOOKUP_EXAMPLE)
        if option is None:
            if len(roles) == 1:
                return roles[0]
            if connector.untyped_role is not None:
                return connector.untyped_role
            raise self.script.error(
                create,
                f"connector '{connector.name}' can be a source or a sink, and the table has no type",
                "Add type = 'source' or type = 'sink'.",
            )
        try:
            role = Role(option.value)
        except ValueError as error:
            message = f"type must be 'source' or 'sink', not '{option.value}'"
            raise self.script.error(
                option.node, message, did_you_mean(option.value, Role)
            ) from error
        if role not in roles:
            only = " or ".join(sorted(roles))
            message = f"connector '{connector.name}' cannot be a {role}"
            raise self.script.error(option.node, message, f"Use it as a {only}.")
        return role

    def _lookup_role(
        self, create: exp.Create, connector: ConnectorSpec, options: dict[str, Option]
    ) -> Role:
        """Return the role of a temporary table. Its type is optional."""
        option = options.pop("type", None)
        if option is not None and option.value != Role.LOOKUP:
            message = f"a temporary table is a lookup table and cannot be a {option.value}"
            raise self.script.error(option.node, message, "Remove TEMPORARY, or the type.")
        if Role.LOOKUP not in connector.roles:
            known = sorted(
                each.name for each in self.connectors.values() if Role.LOOKUP in each.roles
            )
            raise self.script.error(
                create,
                "a temporary table is a lookup table, which connector"
                f" '{connector.name}' does not support",
                f"Remove TEMPORARY, or use a connector for lookup tables: {', '.join(known)}.",
            )
        if create.expression is not None:
            message = "a lookup table cannot be defined by AS"
            raise self.script.error(create.expression, message, _LOOKUP_EXAMPLE)
        return Role.LOOKUP

    def _check_max_future(
        self,
        connector: ConnectorSpec,
        chosen: FormatSpec | None,
        watermark: WatermarkSpec | None,
        options: dict[str, Option],
    ) -> None:
        option = options.get(MAX_FUTURE)
        if option is None:
            return
        role = connector.roles[Role.SOURCE]
        if BAD_DATA not in role.own_options or role.fixed_columns is not None:
            message = (
                f"connector '{connector.name}' has no option '{MAX_FUTURE}', because it has no bad"
                " records"
            )
            raise self.script.error(option.node, message, "Remove it.")
        if chosen is not None and chosen.is_changelog:
            message = f"option '{MAX_FUTURE}' requires an append-only source, not {chosen.name}"
            raise self.script.error(option.node, message, "Remove it.")
        if watermark is None:
            message = f"option '{MAX_FUTURE}' requires event time, but the table has none"
            hint = "Declare it, as in WATERMARK FOR at AS at - INTERVAL '5 seconds'."
            raise self.script.error(option.node, message, hint)

    def _interval_option(self, options: dict[str, Option], key: str) -> int | None:
        option = options.pop(key, None)
        if option is None:
            return None
        value = exp.Literal.string(option.value)
        value.meta["start"] = self.script.offset(option.node)
        return interval_micros(value, self.script)

    def _ttl_micros(self, options: dict[str, Option]) -> int:
        option = options.pop(LOOKUP_TTL, None)
        if option is None:
            return _LOOKUP_TTL_MICROS
        if option.value.strip() == "0":
            return 0
        try:
            return interval_micros(exp.Literal.string(option.value), self.script)
        except SqlError as error:
            message = f"option '{LOOKUP_TTL}': {error.message}"
            hint = "Write it as in '10 minutes'. Use '0' to read the table in every epoch."
            raise self.script.error(option.node, message, hint) from error

    def _checked_options(
        self,
        create: exp.Create,
        connector: str,
        spec: RoleSpec,
        known: Mapping[str, OptionSpec],
        options: dict[str, Option],
        columns: tuple[Column, ...],
    ) -> dict[str, str]:
        role = spec.role
        by_column = {
            f"{key}.{each.name.lower()}": one
            for key, one in known.items()
            for each in columns
            if one.per_column and "TIMESTAMP" in each.type and each.generated is None
        }
        others = {
            Role.SOURCE: [EVENT_TIME_FIELD, WATERMARK_FIELD, IDLE_TIMEOUT, MAX_FUTURE],
            Role.SINK: [],
            Role.LOOKUP: [LOOKUP_TTL],
        }[role]
        for option in options.values():
            found = known.get(option.key) or by_column.get(option.key)
            if found is None:
                message = f"connector '{connector}' as a {role} has no option '{option.key}'"
                base, _, column = option.key.partition(".")
                if base in known and known[base].per_column:
                    message = f"there is no column '{column}' that is read as a timestamp"
                hint = did_you_mean(option.key, [*known, *by_column, "type", *others])
                if having := spec.formats_with(option.key):
                    names = " or ".join(f"'{each.name}'" for each in having)
                    message = f"option '{option.key}' requires format = {names}"
                    hint = "Remove it, or set the format."
                raise self.script.error(option.node, message, hint)
            self._check_value(option, found)
        for key, one in known.items():
            if one.required and key not in options:
                message = f"connector '{connector}' as a {role} needs the option '{key}'"
                if key not in spec.own_options:
                    message = f"the format of the table needs the option '{key}'"
                raise self.script.error(create, message, f"Add {key} = '...' to WITH (...).")
        defaults = {key: one.default for key, one in known.items() if one.default is not None}
        return {**defaults, **{each.key: each.value for each in options.values()}}

    def _check_value(self, option: Option, spec: OptionSpec) -> None:
        """Raise SqlError for an invalid value. A stored text can be masked, and the value of a
        reference is not known here: both are checked when the connector is created.
        """
        if unreadable := reference_fault(option.key, option.value):
            raise self.script.error(option.node, *unreadable)
        if is_masked(option.key, option.value):
            return
        if spec.choices is None and has_references(option.value):
            return
        if fault := spec.fault(option.value, option.key):
            raise self.script.error(option.node, fault.message, fault.hint)


def _is_plain_name(node: exp.Expr) -> bool:
    """Return whether an expression is a name without qualifier and quotes."""
    return isinstance(node, exp.Column) and len(node.parts) == 1 and not node.this.quoted


def is_temporary(create: exp.Create) -> bool:
    """Return whether the statement is CREATE TEMPORARY TABLE."""
    properties = create.args.get("properties")
    return properties is not None and properties.find(exp.TemporaryProperty) is not None
