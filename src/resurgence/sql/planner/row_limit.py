"""LIMIT of a SELECT that is printed on the terminal: the total number of rows."""

from __future__ import annotations

from sqlglot import exp

from resurgence.sql.syntax.clauses import clause_name
from resurgence.sql.syntax.parse import Script


def without_limit(query: exp.Query, script: Script) -> tuple[exp.Query, int | None]:
    """Return the query without its LIMIT, and the limit. Other clauses are unchanged."""
    clause = query.args.get("limit")
    if clause is None:
        return query, None
    options = clause.args.get("limit_options")
    is_plain = not (options and (options.args.get("percent") or options.args.get("with_ties")))
    count = clause.args.get("count" if isinstance(clause, exp.Fetch) else "expression")
    if (
        not is_plain
        or not isinstance(count, exp.Literal)
        or not count.is_int
        or not int(count.name)
    ):
        message = f"{clause_name('limit', clause)} requires a positive whole number of rows"
        raise script.error(clause, message, "Write it as in LIMIT 10.")
    rest = query.copy()
    rest.set("limit", None)
    return rest, int(count.name)
