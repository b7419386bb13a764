"""Hints to the optimizer, as in `SELECT /*+ BROADCAST(t) */ ...`.

Hints about how to join or to distribute rows change no answer. They are accepted and have no effect:
how an operator distributes its rows is fixed by its state. Any other hint is refused, because some
change the answer (Flink's STATE_TTL).
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
    """Raises SqlError for a hint that could change the answer."""
    clause = select.args.get("hint")
    for each in clause.expressions if clause else []:
        # The parser gives up on hints that it cannot read, and leaves their text.
        name = each.name if isinstance(each, exp.Expr) else str(each).strip()
        if name.lower() not in _WITHOUT_EFFECT:
            hint = "leave it out"
            if name.lower() == "state_ttl":
                hint = "use SET updating_ttl = INTERVAL '1 day'"
            # Offsets inside a hint are those of its own text.
            raise script.error(select, f"the hint {name} is not supported", hint)
