"""What a text declares, for an editor: its tables and views with their columns; its queries.

For completion the text may be unfinished: a statement that cannot be parsed is left out, the others count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from resurgence.errors import SqlError
from resurgence.graph.connector_spec import ConnectorSpec
from resurgence.sql.syntax.dialect import Resurgence
from resurgence.sql.syntax.parse import parse


def declared_names(text: str, connectors: Mapping[str, ConnectorSpec]) -> dict[str, list[str]]:
    """Return the columns of each table and view, by name; none for those that are not written."""
    found: dict[str, list[str]] = {}
    for statement in _statements(text):
        try:
            parsed = parse(statement).statements
        except SqlError:
            continue
        for each in parsed:
            if isinstance(each, exp.Create):
                named = each.this.this if isinstance(each.this, exp.Schema) else each.this
                if isinstance(named, exp.Table):
                    found[named.name] = _columns(each, connectors)
    return found


def declarations_and_queries(text: str) -> tuple[list[str], list[str]]:
    """Return the statements of a text that later ones may need, and the queries of the others.
    Raise SqlError if it cannot be parsed.
    """
    declarations: list[str] = []
    queries: list[str] = []
    without_connector: set[str] = set()
    for statement in _statements(text):
        for each in parse(statement).statements:
            target = each.this.this if isinstance(each.this, exp.Schema) else each.this
            if isinstance(each, exp.Create):
                declarations.append(statement)
                if isinstance(each.this, exp.Schema) and not each.find(exp.Property):
                    without_connector.add(target.name)
            elif isinstance(each, exp.Insert):
                if target.name in without_connector:
                    declarations.append(statement)
                else:
                    queries.append(_query_of(statement))
            elif isinstance(each, exp.Query):
                queries.append(statement)
            else:
                declarations.append(statement)
    return declarations, queries


def _query_of(insert: str) -> str:
    """Return the text of an INSERT from its query on."""
    for token in Resurgence().tokenize(insert):
        if token.token_type in (TokenType.SELECT, TokenType.WITH):
            return insert[token.start :]
    return insert


def _statements(text: str) -> Iterator[str]:
    try:
        tokens = Resurgence().tokenize(text)
    except TokenError:
        # In the middle of a string: what is before it counts.
        place = max(text.rfind("'"), text.rfind('"'), text.rfind("/*"))
        if place > 0:
            yield from _statements(text[:place])
        return
    start = 0
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            yield text[start : token.start]
            start = token.end + 1
    if text[start:].strip():
        yield text[start:]


def _columns(create: exp.Create, connectors: Mapping[str, ConnectorSpec]) -> list[str]:
    if isinstance(create.this, exp.Schema):
        return [each.name for each in create.this.expressions if isinstance(each, exp.ColumnDef)]
    if isinstance(create.expression, exp.Query):
        return [name for name in create.expression.named_selects if name and name != "*"]
    for option in create.find_all(exp.Property):
        if option.name.lower() == "connector" and option.args.get("value") is not None:
            spec = connectors.get(option.args["value"].name)
            roles = spec.roles.values() if spec else ()
            return [each.name for role in roles for each in role.fixed_columns or ()]
    return []
