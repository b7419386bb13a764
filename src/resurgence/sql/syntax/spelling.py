"""Rewrites that make a query explicit: named windows, aliases of earlier items, and joins whose
condition is in WHERE.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from resurgence.sql.catalog.relation import Relation
from resurgence.sql.functions.registry import EXPLODES
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.planner.joins.joins import conjuncts
from resurgence.sql.planner.windows.window_call import is_window_call
from resurgence.sql.syntax.parse import Script

_COMPARISONS = (exp.EQ, exp.NullSafeEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)


def with_windows(select: exp.Select, script: Script) -> exp.Select:
    """Return the query with OVER name replaced by the definition in WINDOW name AS (...)."""
    items = [*select.expressions, *filter(None, [select.args.get("qualify")])]
    if not any(each.args.get("alias") for item in items for each in item.find_all(exp.Window)):
        if select.args.get("windows"):
            select.set("windows", None)
        return select
    filled = select.copy()
    known: dict[str, exp.Window] = {}

    def fill(window: exp.Window) -> None:
        name = window.args.get("alias")
        if name is None:
            return
        if name.name.lower() not in known:
            hint = f"Add WINDOW {name.name} AS (PARTITION BY ...) after the query."
            raise script.error(window, f"there is no window '{name.name}' in this query", hint)
        window.set("alias", None)
        base = known[name.name.lower()].copy()
        for key in ("partition_by", "order", "spec"):
            if base.args.get(key) and not window.args.get(key):
                window.set(key, base.args[key])

    for each in filled.args.get("windows") or []:
        fill(each)
        if each.name.lower() in known:
            message = f"window '{each.name}' is defined twice"
            raise script.error(each, message, "Choose another name.")
        known[each.name.lower()] = each
    for item in [*filled.expressions, *filter(None, [filled.args.get("qualify")])]:
        for window in item.find_all(exp.Window):
            fill(window)
    filled.set("windows", None)
    return filled


def with_aliases(select: exp.Select, source: Relation, expressions: Expressions) -> exp.Select:
    """Return the query with aliases of earlier items in its select list, unless they are columns,
    replaced by their expressions.
    """
    known: dict[str, exp.Expr] = {}
    repeated: set[str] = set()

    def step(node: exp.Expr) -> exp.Expr:
        is_name = isinstance(node, exp.Column) and len(node.parts) == 1 and not node.is_star
        name = node.name.lower()
        if not is_name or source.find(name) or name not in known:
            return node
        if name in repeated:
            message = f"several earlier items have the alias '{node.name}'"
            raise expressions.script.error(node, message, "Choose a different alias for each.")
        value = known[name].copy()
        stated = value if isinstance(value, exp.Column) else exp.Paren(this=value)
        # A field of a struct is named as written.
        is_field = isinstance(node.parent, exp.Anonymous) and node.parent.name.lower() == "struct"
        return exp.alias_(stated, node.name, quoted=True) if is_field else stated

    items = []
    for each in select.expressions:
        item = each.transform(step, copy=True)
        if isinstance(each, exp.Column) and item != each:
            item = exp.alias_(item, each.name, quoted=True, copy=False)
        items.append(item)
        value = item.unalias()
        is_explode = isinstance(value, exp.Anonymous) and value.name.lower() in EXPLODES
        if item.alias and not is_explode and not is_window_call(value, expressions):
            if item.alias.lower() in known:
                repeated.add(item.alias.lower())
            known[item.alias.lower()] = value
    if items == select.expressions:
        return select
    spelled = select.copy()
    spelled.set("expressions", items)
    return spelled


def with_condition(
    join: exp.Join, left: Relation, right: Relation, select: exp.Select, expressions: Expressions
) -> exp.Join:
    """Return the join with the comparisons of both sides in WHERE as its condition, as in
    `FROM a, b WHERE a.key = b.key`. They remain in WHERE, too.
    """
    where, joins = select.args.get("where"), select.args["joins"]
    is_plain = not (join.args.get("on") or join.args.get("using") or join.side or join.method)
    if where is None or not is_plain or (join.kind or "CROSS").upper() != "CROSS":
        return join
    # WHERE alone must filter the rows that an outer join adds afterwards.
    if any((each.side or "").upper() in ("RIGHT", "FULL") for each in joins):
        return join
    both = replace(left, attributes=(*left.attributes, *right.attributes))
    place = next(number for number, each in enumerate(joins) if each is join)
    later = {each.this.alias_or_name.lower() for each in joins[place + 1 :]}
    parts = [
        part
        for part in conjuncts(where.this)
        if isinstance(part, _COMPARISONS)
        and not any(each.parts[0].name.lower() in later for each in _qualified_columns(part))
        and expressions.binds(part, both)
        and not any(expressions.binds(part, side) for side in (left, right))
    ]
    if not parts:
        return join
    stated = exp.Join(this=join.this.copy(), on=exp.and_(*parts))
    stated.meta["start"] = expressions.script.offset(join)
    return stated


def _qualified_columns(part: exp.Expr) -> list[exp.Column]:
    return [each for each in part.find_all(exp.Column) if len(each.parts) > 1]
