"""Optimizer hints, as in `SELECT /*+ BROADCAST(t) */ ...`.

Hints about how to join or to distribute rows do not change results. They are accepted and have no
effect: the state of an operator fixes how its rows are distributed. Any other hint is refused,
because some change results (Flink's STATE_TTL).
"""

from __future__ import annotations

from sqlglot import exp

from resurgence.sql.syntax.parse import Script

_WITHOUT_EFFECT = frozenset(
    {
        *("broadcast", "broadcastjoin", "mapjoin", "merge", "mergejoin", "shufflemerge"),
        *("shuffle_hash", "shuffle_merge", "shuffle_replicate_nl", "nest_loop", "rebalance"),
        *("coalesce", "repartition", "repartition_by_range"),
    }
)


def check_hints(select: exp.Select, script: Script) -> None:
    """Raise SqlError for a hint that could change the result."""
    clause = select.args.get("hint")
    for each in clause.expressions if clause else []:
        # The parser leaves hints that it cannot read as text.
        name = each.name if isinstance(each, exp.Expr) else str(each).strip()
        if name.lower() not in _WITHOUT_EFFECT:
            hint = "Remove it."
            if name.lower() == "state_ttl":
                hint = "Use SET updating_ttl = INTERVAL '1 day'."
            # Offsets inside a hint are relative to its own text.
            raise script.error(select, f"the hint {name} is not supported", hint)
