"""Compilation of the statements of a file, in order, into a graph.

Tables and views must be declared before they are used. A view, like any query, is compiled where it
is declared, so that its errors are reported even if no query reads it; operators that feed no sink
are removed from the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.errors import UnsupportedError

from resurgence.config import OnError
from resurgence.errors import SqlError, did_you_mean
from resurgence.graph.connector_spec import ConnectorSpec, FormatSpec, Role, RoleSpec
from resurgence.graph.model import Graph
from resurgence.graph.specs.base import slug
from resurgence.graph.table_options import FORMAT
from resurgence.graph.values import Column, Expression, Position
from resurgence.ids import OperatorId
from resurgence.sql.catalog.changelogs import normalised
from resurgence.sql.catalog.relation import (
    WINDOW_TYPE,
    Attribute,
    Relation,
    RowKind,
    WindowPart,
    column_sql,
)
from resurgence.sql.catalog.tables import Declarations, Table, attributes
from resurgence.sql.functions.registry import FunctionCatalog
from resurgence.sql.functions.scalar_names import spark_names
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.planner.joins.lookups import lookup_relation
from resurgence.sql.planner.operators import Operators
from resurgence.sql.planner.projection import hidden_columns, named_items, star_items
from resurgence.sql.planner.row_limit import without_limit
from resurgence.sql.planner.select import Selects
from resurgence.sql.planner.set_operations import MATCHED_BY_POSITION
from resurgence.sql.planner.windows.foreign_windows import with_native_windows
from resurgence.sql.syntax.clauses import drop_comments, refuse_unread, unsupported
from resurgence.sql.syntax.intervals import interval_micros
from resurgence.sql.syntax.parse import Script, parse
from resurgence.udf import FunctionKind

TERMINAL = Table(name="terminal", role=Role.SINK, connector="stdout", options={}, columns=None)
"""The sink of a SELECT without INSERT."""

_SETTINGS = (
    "Use SET updating_ttl = INTERVAL '1 day', SET allowed_lateness = INTERVAL '10 seconds',"
    " SET late_rows = 'sink' or SET on_error = 'dead_letter'."
)
_INSERT_CLAUSES = frozenset({"this", "expression", "with_"})
_VIEW_CLAUSES = _INSERT_CLAUSES | {"kind"}
_TABLE_CLAUSES = _VIEW_CLAUSES | {"properties"}
_NO_FUNCTIONS: Mapping[str, FunctionKind] = {}


def compile_pipeline(
    text: str,
    connectors: Mapping[str, ConnectorSpec],
    functions: Mapping[str, FunctionKind] = _NO_FUNCTIONS,
) -> Graph:
    """Return the graph of a pipeline. Raise SqlError with the position of the first error. Needs
    no Spark.
    """
    script = parse(text)
    pipeline = _Pipeline(script, connectors, functions)
    is_user_defined = FunctionCatalog(functions).is_user_defined
    for statement in script.statements:
        try:
            renamed = spark_names(statement, script, is_user_defined)
            pipeline.read(with_native_windows(renamed, script, is_user_defined))
        except UnsupportedError as error:
            message = f"the statement uses syntax that Spark does not support: {error}"
            hint = "Rewrite the statement with syntax that Spark supports."
            raise script.error(statement, message, hint) from error
    graph = pipeline.operators.graph().model_copy(update={"on_error": pipeline.on_error})
    if not graph.sinks():
        hint = "Add INSERT INTO sink SELECT ... FROM source, or a SELECT."
        raise SqlError("the pipeline has no output", line=1, column=1, hint=hint)
    return graph


@dataclass(frozen=True)
class VirtualTable:
    """A table without a connector: later queries read the rows of the one INSERT into it."""

    name: str
    columns: tuple[Column, ...]


class _Pipeline:
    """The names declared and the operators created so far."""

    def __init__(
        self,
        script: Script,
        connectors: Mapping[str, ConnectorSpec],
        functions: Mapping[str, FunctionKind],
    ) -> None:
        self.script = script
        self.operators = Operators()
        expressions = Expressions(script, FunctionCatalog(functions))
        self._declarations = Declarations(expressions, connectors)
        self._selects = Selects(expressions, self.operators)
        self._tables: dict[str, Table] = {}
        self._views: dict[str, Relation] = {}
        self._virtual_tables: dict[str, VirtualTable] = {}
        """Tables without a connector that no INSERT has filled yet."""
        self._filled: set[str] = set()
        self.on_error: OnError | None = None
        self._late_sink: Table | None = None
        self._diverted: set[OperatorId] = set()
        """The windows whose late rows are written to a sink."""
        self._is_upserted: dict[str, bool] = {}
        """By table: whether the first INSERT into it writes a changelog."""

    def read(self, statement: exp.Expr) -> None:
        if isinstance(statement, exp.Create):
            drop_comments(statement)
        match statement:
            case exp.Create() if statement.kind == "TABLE":
                self._create_table(statement)
            case exp.Create() if statement.kind == "VIEW":
                self._create_view(statement)
            case exp.Insert():
                self._insert(statement)
            case exp.Set():
                self._set(statement)
            case exp.Query():
                self._preview(statement)
            case _:
                raise self._refused(statement)
        self._divert_late_rows(statement)

    def _preview(self, statement: exp.Query) -> None:
        """Compile a SELECT without INSERT: print its rows, at most LIMIT in total."""
        query, limit = without_limit(statement, self.script)
        relation = self._selects.compile(query, self._lookup)
        if relation.kind is not RowKind.UPDATING:
            self._output(relation, TERMINAL, statement, limit=limit)
            return
        if limit is not None:
            message = "LIMIT requires an append-only result, but this result is a changelog"
            raise self.script.error(statement.args["limit"], message, "Aggregate in a window.")
        self._output(relation, self._changelog_terminal(), statement)

    def _changelog_terminal(self) -> Table:
        """Return the terminal with a changelog format."""
        for each in self._changelog_formats(TERMINAL):
            return replace(TERMINAL, options={FORMAT: each.name}, format=each)
        return TERMINAL

    def _changelog_formats(self, table: Table) -> list[FormatSpec]:
        """Return the changelog formats of a sink."""
        role = self._sink_role(table)
        return [each for each in role.formats if each.is_changelog] if role is not None else []

    def _sink_role(self, table: Table) -> RoleSpec | None:
        """Return what is known of a sink's connector; None for the terminal of a planner without
        connectors.
        """
        known = self._declarations.connectors.get(table.connector)
        return known.roles[Role.SINK] if known is not None else None

    def _create_table(self, create: exp.Create) -> None:
        refuse_unread(create, _TABLE_CLAUSES, self.script, "in CREATE TABLE")
        name = self._new_name(create)
        properties = create.args.get("properties")
        if properties is None and create.expression is None:
            columns = self._declarations.plain_columns(create)
            self._virtual_tables[name] = VirtualTable(name, columns)
            return
        if properties is None:
            self._views[name] = self._selects.compile(self._query(create), self._lookup)
            return
        table = self._tables[name] = self._declarations.table(create)
        if create.expression is not None:
            if table.role is Role.SOURCE:
                message = f"table '{table.name}' is a source and cannot be filled by AS SELECT"
                raise self.script.error(create, message, "Declare it with type = 'sink'.")
            self._output(self._selects.compile(self._query(create), self._lookup), table, create)

    def _set(self, statement: exp.Set) -> None:
        """Apply SET updating_ttl = INTERVAL '1 day' and the like to the statements after it."""
        for item in statement.expressions:
            pair = item.this
            match pair.this.name.lower() if isinstance(pair, exp.EQ) else "":
                case "updating_ttl":
                    self.operators.ttl_micros = interval_micros(pair.expression, self.script)
                case "allowed_lateness":
                    self.operators.lateness_micros = interval_micros(pair.expression, self.script)
                case "late_rows":
                    self._late_sink = self._sink(pair.expression)
                    self.operators.diverts_late_rows = True
                case "on_error":
                    self.on_error = self._on_error(pair.expression)
                case name:
                    message = f"there is no setting '{name or item.sql()}' in SQL"
                    raise self.script.error(statement, message, _SETTINGS)

    def _on_error(self, node: exp.Expr) -> OnError:
        """Return what to do about rows on which an epoch fails. It holds for the whole pipeline."""
        choices = [each.value for each in OnError]
        if node.name not in choices:
            message = f"'{node.name}' is not a valid value for on_error"
            hint = f"Use {' or '.join(repr(each) for each in choices)}."
            raise self.script.error(node, message, hint)
        chosen = OnError(node.name)
        if self.on_error not in (None, chosen):
            message = "on_error is set twice, to different values"
            raise self.script.error(node, message, "Set it once: it applies to the whole pipeline.")
        return chosen

    def _sink(self, node: exp.Expr) -> Table:
        """Return the sink that a setting names, as a string or as an identifier."""
        named = exp.Table(this=exp.to_identifier(node.name))
        named.meta["start"] = self.script.offset(node)
        table = self._known_table(named)
        if table.role is not Role.SINK:
            message = f"table '{table.name}' cannot be written"
            hint = "Name a sink. Declare one with type = 'sink'."
            raise self.script.error(node, message, hint)
        return table

    def _divert_late_rows(self, statement: exp.Expr) -> None:
        """Write the late rows of the windows of a statement to the sink that late_rows names."""
        created, self.operators.windows = self.operators.windows, []
        for window, source in created:
            if self._late_sink is not None and window not in self._diverted:
                self._diverted.add(window)
                late = self.operators.late_rows(source.operator, window)
                producer = "the input of the window"
                self._output(
                    replace(source, operator=late), self._late_sink, statement, producer=producer
                )

    def _create_view(self, create: exp.Create) -> None:
        refuse_unread(create, _VIEW_CLAUSES, self.script, "in CREATE VIEW")
        name = self._new_name(create)
        if create.expression is None:
            hint = "Write it as in CREATE VIEW v AS SELECT ... FROM source."
            raise self.script.error(create, "CREATE VIEW requires a query", hint)
        view = self._selects.compile(self._query(create), self._lookup)
        if isinstance(create.this, exp.Schema):
            view = view.with_names(create.this.expressions, self.script)
        self._views[name] = view

    def _new_name(self, create: exp.Create) -> str:
        table = create.find(exp.Table)
        if table is None:
            raise self.script.error(create, f"CREATE {create.kind} requires a name")
        self._refuse_qualifier(table)
        for known in (*self._tables, *self._views, *self._virtual_tables):
            if slug(known) == slug(table.name):
                message = f"the name '{table.name}' is already in use"
                raise self.script.error(table, message, "Choose another name.")
        return table.name.lower()

    def _lookup(self, node: exp.Table) -> Relation:
        self._refuse_qualifier(node)
        name = node.name.lower()
        if name in self._views:
            return self._views[name]
        if name in self._virtual_tables:
            message = f"table '{node.name}' is read before an INSERT INTO fills it"
            hint = f"Put INSERT INTO {node.name} before the query that reads it."
            raise self.script.error(node, message, hint)
        table = self._known_table(node)
        if table.role is Role.SINK:
            message = f"table '{table.name}' is a sink and cannot be read"
            hint = "Read a source. Declare one with type = 'source'."
            raise self.script.error(node, message, hint)
        columns = table.columns or ()
        if table.role is Role.LOOKUP:
            return lookup_relation(table)
        is_updating = table.is_changelog
        if is_updating and table.uses_keys and table.primary_key:
            operator = normalised(table, self.operators)
        else:
            operator = self.operators.source(
                table.name,
                table.connector,
                table.options,
                columns,
                table.watermark,
                table.idle_micros,
                table.max_future_micros,
                is_changelog=is_updating,
            )
        event_time = table.watermark.event_time if table.watermark else None
        return Relation(
            operator,
            tuple(
                replace(each, is_event_time=each.column == event_time and not is_updating)
                for each in attributes(columns)
            ),
            has_event_time=table.watermark is not None and not is_updating,
            kind=RowKind.UPDATING if is_updating else RowKind.APPENDED,
        )

    def _known_table(self, node: exp.Table) -> Table:
        name = node.name.lower()
        if name not in self._tables:
            names = [*(each.name for each in self._tables.values()), *self._views]
            raise self.script.error(
                node, f"there is no table '{node.name}'", did_you_mean(node.name, names)
            )
        return self._tables[name]

    def _insert(self, insert: exp.Insert) -> None:
        refuse_unread(insert, _INSERT_CLAUSES, self.script, "in INSERT")
        schema = insert.this if isinstance(insert.this, exp.Schema) else None
        node = schema.this if schema else insert.this
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise self.script.error(insert, "INSERT INTO requires a table", "Name a sink.")
        self._refuse_qualifier(node)
        if node.name.lower() in self._views:
            is_filled = node.name.lower() in self._filled
            message = f"'{node.name}' is a view and cannot be written"
            if is_filled:
                message = f"table '{node.name}' is already filled by another INSERT INTO"
            hint = "Use UNION ALL in one INSERT INTO." if is_filled else "Name a sink."
            raise self.script.error(node, message, hint)
        if node.name.lower() in self._virtual_tables:
            self._fill(self._virtual_tables[node.name.lower()], insert)
            return
        table = self._known_table(node)
        if table.role is not Role.SINK:
            kind = "source" if table.role is Role.SOURCE else "lookup table"
            message = f"table '{table.name}' is a {kind} and cannot be written"
            hint = "Write to a sink. Declare one with type = 'sink'."
            raise self.script.error(node, message, hint)
        if not isinstance(insert.expression, exp.Query) or isinstance(
            insert.expression, exp.Values
        ):
            hint = "Select the rows from a source instead of VALUES."
            raise self.script.error(insert, "INSERT INTO requires a SELECT", hint)
        relation = self._selects.compile(self._query(insert), self._lookup)
        self._output(relation, table, insert, self._targets(schema, table))

    def _fill(self, table: VirtualTable, insert: exp.Insert) -> None:
        """Turn a table without a connector into a view of the rows of an INSERT."""
        relation = self._selects.compile(self._query(insert), self._lookup)
        selected, columns = relation.attributes, table.columns
        if len(selected) != len(columns):
            declared = f"table '{table.name}' has {_columns(len(columns))}"
            message = f"{declared}, but the SELECT has {len(selected)}"
            raise self.script.error(insert.expression, message, MATCHED_BY_POSITION)
        select = tuple(_cast(*each) for each in zip(selected, columns, strict=True))
        operator = self.operators.query(relation.operator, (*select, *hidden_columns(relation)))
        attributes = tuple(
            Attribute(
                each.name,
                each.name,
                each.type,
                window=one.window if _keeps_window(one, each) else None,
                is_event_time=one.is_event_time and each.type == "TIMESTAMP",
            )
            for one, each in zip(selected, columns, strict=True)
        )
        del self._virtual_tables[table.name]
        self._filled.add(table.name)
        self._views[table.name] = replace(relation, operator=operator, attributes=attributes)

    def _targets(self, schema: exp.Schema | None, table: Table) -> list[str] | None:
        """Return the columns named in INSERT INTO t (a, b), in lower case."""
        if schema is None:
            return None
        if table.columns is None:
            message = f"table '{table.name}' declares no columns to choose from"
            raise self.script.error(schema.expressions[0], message, "Remove the column list.")
        known = {each.name.lower() for each in table.columns}
        targets: list[str] = []
        for each in schema.expressions:
            name = each.name.lower()
            if name not in known:
                hint = did_you_mean(each.name, [column.name for column in table.columns])
                raise self.script.error(
                    each, f"table '{table.name}' has no column '{each.name}'", hint
                )
            if name in targets:
                message = f"column '{each.name}' is named twice"
                raise self.script.error(each, message, "Remove one of them.")
            targets.append(name)
        for column in table.columns:
            if not column.nullable and column.name.lower() not in targets:
                message = f"column '{column.name}' of '{table.name}' is NOT NULL but gets no value"
                hint = f"Add '{column.name}' to the column list."
                raise self.script.error(schema.expressions[0], message, hint)
        return targets

    def _output(
        self,
        relation: Relation,
        table: Table,
        statement: exp.Expr,
        targets: list[str] | None = None,
        producer: str = "the SELECT",
        limit: int | None = None,
    ) -> None:
        """Write a query to a sink, through a projection onto the sink's columns, without event
        time unless the sink needs it.
        """
        selected = relation.attributes
        if relation.kind is RowKind.UPDATING:
            self._require_updates(table, statement)
        role = self._sink_role(table)
        if role is not None and role.appends_or_upserts:
            self._require_one_kind(relation, table, statement)
        needs_time = role is not None and role.event_time_option in table.options
        if role is not None and needs_time and not relation.has_event_time:
            message = f"option '{role.event_time_option}' requires rows with an event time"
            hint = "Declare a WATERMARK on the source, and write no changelog to this table."
            raise self.script.error(statement, message, hint)
        if table.columns is None:
            final = self._projected(relation, self.script.position(statement), needs_time)
        else:
            names = (
                targets if targets is not None else [each.name.lower() for each in table.columns]
            )
            if len(names) != len(selected):
                what = "the column list" if targets is not None else f"table '{table.name}'"
                message = f"{what} has {_columns(len(names))}, but {producer} has {len(selected)}"
                query = statement.expression if isinstance(statement, exp.Insert) else statement
                raise self.script.error(query, message, MATCHED_BY_POSITION)
            values = dict(zip(names, selected, strict=True))
            select = tuple(_cast(values.get(each.name.lower()), each) for each in table.columns)
            hidden = hidden_columns(replace(relation, has_event_time=needs_time))
            final = self.operators.query(relation.operator, (*select, *hidden))
        upserts = role is not None and role.upserts and relation.kind is RowKind.UPDATING
        self.operators.sink(
            final,
            table.name,
            table.connector,
            table.options,
            table.columns,
            table.primary_key,
            limit,
            pairs_changes=table.uses_keys or upserts,
            guarantee=role.guarantee_of(table.options) if role is not None else None,
        )

    def _projected(self, relation: Relation, position: Position, needs_time: bool) -> OperatorId:
        """Project a relation onto its columns under their names, and onto event time if needed."""
        chosen = named_items(star_items(relation, position))
        is_named = [each.column for each, _ in chosen] == [
            each.column for each in relation.attributes
        ]
        is_bare = not relation.has_event_time and not self.operators.is_source(relation.operator)
        if is_named and is_bare:
            return relation.operator
        hidden = hidden_columns(replace(relation, has_event_time=needs_time))
        return self.operators.query(
            relation.operator, (*(expression for _, expression in chosen), *hidden)
        )

    def _require_updates(self, table: Table, statement: exp.Expr) -> None:
        """Raise SqlError unless the table accepts a changelog."""
        role = self._sink_role(table)
        upserts = role is not None and role.upserts
        if table.is_changelog or (upserts and table.primary_key):
            return
        query = statement.expression if isinstance(statement, exp.Insert) else statement
        windows = "windows, as in GROUP BY tumble(INTERVAL '1 hour') and ON a.window = b.window"
        formats = " or ".join(f"'{each.name}'" for each in self._changelog_formats(table))
        choices = [
            *(["declare a PRIMARY KEY to write upserts and deletes by key"] if upserts else []),
            *([f"set format = {formats}"] if formats else []),
            f"aggregate and join in {windows}",
        ]
        hint = ", or ".join(choices)
        raise self.script.error(
            query,
            f"table '{table.name}' requires an append-only input, but the result is a changelog",
            f"{hint[0].upper()}{hint[1:]}.",
        )

    def _require_one_kind(self, relation: Relation, table: Table, statement: exp.Expr) -> None:
        """Raise SqlError if one INSERT into a table writes a changelog, and another one does not."""
        is_upserted = relation.kind is RowKind.UPDATING
        if self._is_upserted.setdefault(table.name, is_upserted) is is_upserted:
            return
        raise self.script.error(
            statement.expression if isinstance(statement, exp.Insert) else statement,
            f"table '{table.name}' cannot be written by both append-only queries and changelogs",
            "Combine the queries by UNION ALL in one INSERT, or write to two tables.",
        )

    def _query(self, statement: exp.Create | exp.Insert) -> exp.Expr:
        """Return the statement's query, including a WITH clause before the statement."""
        query: exp.Expr = statement.expression
        outer = statement.args.get("with_")
        if outer is not None:
            inner = query.args.get("with_")
            outer = outer.copy()
            outer.set("expressions", [*outer.expressions, *(inner.expressions if inner else [])])
            query.set("with_", outer)
        return query

    def _refuse_qualifier(self, table: exp.Table) -> None:
        if table.db:
            raise unsupported(table, "db", self.script)

    def _refused(self, statement: exp.Expr) -> SqlError:
        words = self.script.text[self.script.offset(statement) :].split(maxsplit=1)
        word = words[0].rstrip(";").upper() if words else "this"
        hint = "Use CREATE TABLE, CREATE VIEW, INSERT INTO and SELECT."
        return self.script.error(statement, f"{word} is not supported in a pipeline", hint)


def _cast(value: Attribute | None, column: Column) -> Expression:
    inner = column_sql(value) if value else "NULL"
    return Expression(name=column.name, sql=f"CAST({inner} AS {column.type})")


def _keeps_window(selected: Attribute, column: Column) -> bool:
    """Return whether a cast to a declared type preserves the window information of a column."""
    kind = WINDOW_TYPE if selected.window is WindowPart.WHOLE else "TIMESTAMP"
    return column.type.lower() == kind.lower()


def _columns(count: int) -> str:
    return f"{count} column" if count == 1 else f"{count} columns"
