"""The statements of a file, in order, to a graph.

Tables and views are declared before they are used. A view, like any query, is compiled where it
stands, so that its mistakes are reported even if nobody reads it; operators that feed no sink are
left out of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.errors import UnsupportedError

from resurgence.errors import SqlError, did_you_mean
from resurgence.graph.connector_spec import ConnectorSpec, FormatSpec, Role
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
from resurgence.sql.planner.joins.lookups import looked_up
from resurgence.sql.planner.operators import Operators
from resurgence.sql.planner.projection import carried, named_items, star_items
from resurgence.sql.planner.row_limit import without_limit
from resurgence.sql.planner.select import Selects
from resurgence.sql.planner.windows.foreign_windows import own_windows
from resurgence.sql.syntax.clauses import drop_comments, refuse_unread, unsupported
from resurgence.sql.syntax.intervals import interval_micros
from resurgence.sql.syntax.parse import Script, parse
from resurgence.udf import FunctionKind

TERMINAL = Table(name="terminal", role=Role.SINK, connector="stdout", options={}, columns=None)
"""Where a SELECT without INSERT goes."""

_SETTINGS = (
    "use SET updating_ttl = INTERVAL '1 day', SET allowed_lateness = INTERVAL '10 seconds'"
    " or SET late_rows = 'sink'"
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
    """The graph of a pipeline; raises SqlError with the place of the first mistake. Needs no
    Spark.
    """
    script = parse(text)
    pipeline = _Pipeline(script, connectors, functions)
    is_own = FunctionCatalog(functions).is_user_defined
    for statement in script.statements:
        try:
            own = own_windows(spark_names(statement, script, is_own), script, is_own)
            pipeline.read(own)
        except UnsupportedError as error:
            message = f"there is something in it that Spark does not have: {error}"
            raise script.error(statement, message, "write it otherwise") from error
    graph = pipeline.operators.graph()
    if not graph.sinks():
        message = "the pipeline has no output: it needs an INSERT INTO or a SELECT"
        raise SqlError(
            message, line=1, column=1, hint="add INSERT INTO sink SELECT ... FROM source"
        )
    return graph


@dataclass(frozen=True)
class HandOver:
    """A table without a connector: it hands the rows of one INSERT to the queries after it."""

    name: str
    columns: tuple[Column, ...]


class _Pipeline:
    """The names declared so far and the operators made so far."""

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
        self._hand_overs: dict[str, HandOver] = {}
        """Tables without a connector that no INSERT has filled yet."""
        self._filled: set[str] = set()
        self._late_sink: Table | None = None
        self._diverted: set[OperatorId] = set()
        """The windows whose late rows go somewhere."""

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
        """A SELECT by itself: its rows go to the terminal, with LIMIT so many in all."""
        query, limit = without_limit(statement, self.script)
        relation = self._selects.compile(query, self._lookup)
        if relation.kind is not RowKind.UPDATING:
            self._output(relation, TERMINAL, statement, limit=limit)
            return
        if limit is not None:
            message = "LIMIT requires an append-only result, and this one changes as rows come"
            raise self.script.error(statement.args["limit"], message, "aggregate in a window")
        self._output(relation, self._changelog_terminal(), statement)

    def _changelog_terminal(self) -> Table:
        """The terminal in a format that writes changes."""
        for each in self._changelog_formats(TERMINAL):
            return replace(TERMINAL, options={FORMAT: each.name}, format=each)
        return TERMINAL

    def _changelog_formats(self, table: Table) -> list[FormatSpec]:
        """The formats of a sink that write changes."""
        known = self._declarations.connectors.get(table.connector)
        formats = known.roles[Role.SINK].formats if known is not None else ()
        return [each for each in formats if each.is_changelog]

    def _create_table(self, create: exp.Create) -> None:
        refuse_unread(create, _TABLE_CLAUSES, self.script, "in CREATE TABLE")
        name = self._new_name(create)
        properties = create.args.get("properties")
        if properties is None and create.expression is None:
            self._hand_overs[name] = HandOver(name, self._declarations.plain_columns(create))
            return
        if properties is None:
            self._views[name] = self._selects.compile(self._query(create), self._lookup)
            return
        table = self._tables[name] = self._declarations.table(create)
        if create.expression is not None:
            if table.role is Role.SOURCE:
                message = f"table '{table.name}' is a source, and AS gives it rows"
                raise self.script.error(create, message, "declare it with type = 'sink'")
            self._output(self._selects.compile(self._query(create), self._lookup), table, create)

    def _set(self, statement: exp.Set) -> None:
        """SET updating_ttl = INTERVAL '1 day': for the statements that follow."""
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
                case name:
                    message = f"there is no setting '{name or item.sql()}' in SQL"
                    raise self.script.error(statement, message, _SETTINGS)

    def _sink(self, node: exp.Expr) -> Table:
        """The sink that a setting names, as a text or as it is."""
        named = exp.Table(this=exp.to_identifier(node.name))
        named.meta["start"] = self.script.offset(node)
        table = self._known_table(named)
        if table.role is not Role.SINK:
            message = f"table '{table.name}' cannot be written"
            raise self.script.error(node, message, "name a sink; declare one with type = 'sink'")
        return table

    def _divert_late_rows(self, statement: exp.Expr) -> None:
        """Send what comes too late for the windows of a statement where it is wanted."""
        made, self.operators.windows = self.operators.windows, []
        for window, source in made:
            if self._late_sink is not None and window not in self._diverted:
                self._diverted.add(window)
                late = self.operators.late_rows(source.operator, window)
                giver = "the input of the window"
                self._output(
                    replace(source, operator=late), self._late_sink, statement, giver=giver
                )

    def _create_view(self, create: exp.Create) -> None:
        refuse_unread(create, _VIEW_CLAUSES, self.script, "in CREATE VIEW")
        name = self._new_name(create)
        if create.expression is None:
            raise self.script.error(
                create, "a view needs a query", "as in CREATE VIEW v AS SELECT ..."
            )
        view = self._selects.compile(self._query(create), self._lookup)
        if isinstance(create.this, exp.Schema):
            view = view.with_names(create.this.expressions, self.script)
        self._views[name] = view

    def _new_name(self, create: exp.Create) -> str:
        table = create.find(exp.Table)
        if table is None:
            raise self.script.error(create, f"CREATE {create.kind} needs a name")
        self._refuse_qualifier(table)
        for known in (*self._tables, *self._views, *self._hand_overs):
            if slug(known) == slug(table.name):
                raise self.script.error(
                    table, f"the name '{table.name}' is taken", "choose another name"
                )
        return table.name.lower()

    def _lookup(self, node: exp.Table) -> Relation:
        self._refuse_qualifier(node)
        name = node.name.lower()
        if name in self._views:
            return self._views[name]
        if name in self._hand_overs:
            message = f"table '{node.name}' has no rows yet: no INSERT INTO it stands above"
            raise self.script.error(node, message, "a table without a connector is filled first")
        table = self._known_table(node)
        if table.role is Role.SINK:
            message = f"table '{table.name}' is a sink and cannot be read"
            raise self.script.error(
                node, message, "read a source; declare one with type = 'source'"
            )
        columns = table.columns or ()
        if table.role is Role.LOOKUP:
            return looked_up(table)
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
            raise self.script.error(insert, "INSERT INTO takes a table", "name a sink")
        self._refuse_qualifier(node)
        if node.name.lower() in self._views:
            is_filled = node.name.lower() in self._filled
            what = "has its INSERT already" if is_filled else "is a view and cannot be written"
            hint = "use UNION ALL in one INSERT" if is_filled else "name a sink"
            raise self.script.error(node, f"'{node.name}' {what}", hint)
        if node.name.lower() in self._hand_overs:
            self._fill(self._hand_overs[node.name.lower()], insert)
            return
        table = self._known_table(node)
        if table.role is not Role.SINK:
            kind = "source" if table.role is Role.SOURCE else "lookup table"
            message = f"table '{table.name}' is a {kind} and cannot be written"
            raise self.script.error(
                node, message, "write to a sink; declare one with type = 'sink'"
            )
        if not isinstance(insert.expression, exp.Query) or isinstance(
            insert.expression, exp.Values
        ):
            raise self.script.error(
                insert, "INSERT INTO needs a SELECT", "rows come from sources, not from VALUES"
            )
        relation = self._selects.compile(self._query(insert), self._lookup)
        self._output(relation, table, insert, self._targets(schema, table))

    def _fill(self, table: HandOver, insert: exp.Insert) -> None:
        """Rows for a table without a connector: from here on it is a view of them."""
        relation = self._selects.compile(self._query(insert), self._lookup)
        given, columns = relation.attributes, table.columns
        if len(given) != len(columns):
            message = f"table '{table.name}' has {_columns(len(columns))} and the SELECT gives {len(given)}"
            raise self.script.error(insert.expression, message, "columns are matched by position")
        select = tuple(_cast(*each) for each in zip(given, columns, strict=True))
        operator = self.operators.query(relation.operator, (*select, *carried(relation)))
        attributes = tuple(
            Attribute(
                each.name,
                each.name,
                each.type,
                window=one.window if _keeps_window(one, each) else None,
                is_event_time=one.is_event_time and each.type == "TIMESTAMP",
            )
            for one, each in zip(given, columns, strict=True)
        )
        del self._hand_overs[table.name]
        self._filled.add(table.name)
        self._views[table.name] = replace(relation, operator=operator, attributes=attributes)

    def _targets(self, schema: exp.Schema | None, table: Table) -> list[str] | None:
        """The columns named in INSERT INTO t (a, b), in lower case."""
        if schema is None:
            return None
        if table.columns is None:
            message = f"table '{table.name}' declares no columns to choose from"
            raise self.script.error(schema.expressions[0], message, "leave the column list out")
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
                raise self.script.error(
                    each, f"column '{each.name}' is named twice", "leave one of them out"
                )
            targets.append(name)
        for column in table.columns:
            if not column.nullable and column.name.lower() not in targets:
                message = f"column '{column.name}' of '{table.name}' is NOT NULL and gets no value"
                raise self.script.error(
                    schema.expressions[0], message, f"add '{column.name}' to the list"
                )
        return targets

    def _output(
        self,
        relation: Relation,
        table: Table,
        statement: exp.Expr,
        targets: list[str] | None = None,
        giver: str = "the SELECT",
        limit: int | None = None,
    ) -> None:
        """Ends a query in a sink, through a projection that gives the sink's columns and no
        event time.
        """
        given = relation.attributes
        if relation.kind is RowKind.UPDATING:
            self._require_updates(table, statement)
        if table.columns is None:
            final = self._projected(relation, self.script.position(statement))
        else:
            names = (
                targets if targets is not None else [each.name.lower() for each in table.columns]
            )
            if len(names) != len(given):
                what = "the column list" if targets is not None else f"table '{table.name}'"
                message = f"{what} has {_columns(len(names))} and {giver} gives {len(given)}"
                query = statement.expression if isinstance(statement, exp.Insert) else statement
                raise self.script.error(query, message, "columns are matched by position")
            values = dict(zip(names, given, strict=True))
            select = tuple(_cast(values.get(each.name.lower()), each) for each in table.columns)
            changes = carried(replace(relation, has_event_time=False))
            final = self.operators.query(relation.operator, (*select, *changes))
        self.operators.sink(
            final,
            table.name,
            table.connector,
            table.options,
            table.columns,
            table.primary_key,
            limit,
            pairs_changes=table.uses_keys,
        )

    def _projected(self, relation: Relation, position: Position) -> OperatorId:
        """The columns of a relation, under their names and without event time."""
        chosen = named_items(star_items(relation, position))
        is_named = [each.column for each, _ in chosen] == [
            each.column for each in relation.attributes
        ]
        is_bare = not relation.has_event_time and not self.operators.is_source(relation.operator)
        if is_named and is_bare:
            return relation.operator
        changes = carried(replace(relation, has_event_time=False))
        return self.operators.query(
            relation.operator, (*(expression for _, expression in chosen), *changes)
        )

    def _require_updates(self, table: Table, statement: exp.Expr) -> None:
        """Refuse to write rows that may be taken back where they cannot be."""
        if table.is_changelog:
            return
        query = statement.expression if isinstance(statement, exp.Insert) else statement
        window = (
            "aggregate and join in a window: GROUP BY tumble(INTERVAL '1 hour'),"
            " ON a.window = b.window"
        )
        formats = " or ".join(f"'{each.name}'" for each in self._changelog_formats(table))
        raise self.script.error(
            query,
            f"the result changes as rows come, and table '{table.name}' takes only rows that stay",
            f"write it with format = {formats}, or {window}" if formats else window,
        )

    def _query(self, statement: exp.Create | exp.Insert) -> exp.Expr:
        """The statement's query, with the WITH that may stand before the statement."""
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
        message = f"{word} is not a statement of a pipeline"
        return self.script.error(
            statement, message, "use CREATE TABLE, CREATE VIEW, INSERT INTO and SELECT"
        )


def _cast(value: Attribute | None, column: Column) -> Expression:
    inner = column_sql(value) if value else "NULL"
    return Expression(name=column.name, sql=f"CAST({inner} AS {column.type})")


def _keeps_window(given: Attribute, column: Column) -> bool:
    """Whether a column of a declared type still tells all that is told of the window."""
    kind = WINDOW_TYPE if given.window is WindowPart.WHOLE else "TIMESTAMP"
    return column.type.lower() == kind.lower()


def _columns(count: int) -> str:
    return f"{count} column" if count == 1 else f"{count} columns"
