"""What is known about aggregate functions, in one table.

The planner asks it which calls are allowed, the engine what it has to keep of the rows of a group.
How partials are made and merged in Spark SQL is the engine's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, Flag, auto

from resurgence.sql.functions import spark_functions


class Partials(Enum):
    """What is kept of some rows of a group, so that it can be merged with that of its other rows."""

    COUNT = auto()
    SUM = auto()
    AVERAGE = auto()
    """Sum and count."""
    RESULT = auto()
    """The function's own result; the function merges its results."""
    VARIANCE = auto()
    """Count, mean, squares of deviations."""
    COVARIANCE = auto()
    """The same for two values, and products."""
    EXTREME = auto()
    """The value that goes with the least or greatest of another."""
    BY_EVENT_TIME = auto()
    """The first or last value, and its event time."""


class Trait(Flag):
    """What a function does, or takes."""

    NONE = 0
    EXACT = auto()
    """Partials without floating-point numbers come to the same, to the last bit, in whatever order
    they are merged.
    """
    ORDER_INDEPENDENT = auto()
    """The answer does not depend on the order of rows, so that a scalar subquery may ask for it."""
    IGNORES_DUPLICATES = auto()
    """A value that comes twice makes no difference, so DISTINCT makes none."""
    ORDER_BY = auto()
    """It makes a sequence of its values, or takes one by its place: in the order of ORDER BY among
    its arguments, else of event time.
    """
    WITHIN_GROUP = auto()
    """It takes an order in WITHIN GROUP."""
    SKIPS_NULLS = auto()
    """It leaves out nulls, unless the call says RESPECT NULLS."""
    UNARY = auto()
    """It takes one argument."""


@dataclass(frozen=True)
class AggregateFunction:
    """One aggregate function."""

    name: str
    """Spark's name for it; of several, the one that the others stand for."""
    partials: Partials | None = None
    """None: it cannot be merged, and the arguments of every row are kept."""
    traits: Trait = Trait.NONE
    refusal: tuple[str, str] | None = None
    """Why it is not supported, and what to do instead."""

    def has(self, trait: Trait) -> bool:
        return trait in self.traits


_PLAIN = Trait.EXACT | Trait.ORDER_INDEPENDENT
_DESCRIBED = (
    ("count", Partials.COUNT, _PLAIN),
    ("count_if", Partials.COUNT, _PLAIN | Trait.UNARY),
    ("sum", Partials.SUM, _PLAIN | Trait.UNARY),
    ("avg", Partials.AVERAGE, _PLAIN | Trait.UNARY),
    ("min max", Partials.RESULT, _PLAIN | Trait.UNARY | Trait.IGNORES_DUPLICATES),
    ("bool_and bool_or", Partials.RESULT, _PLAIN | Trait.IGNORES_DUPLICATES),
    ("bit_and bit_or", Partials.RESULT, Trait.EXACT | Trait.IGNORES_DUPLICATES),
    ("bit_xor", Partials.RESULT, Trait.EXACT),
    ("var_pop var_samp stddev_pop stddev_samp", Partials.VARIANCE, Trait.ORDER_INDEPENDENT),
    ("covar_pop covar_samp corr regr_sxx regr_syy", Partials.COVARIANCE, Trait.NONE),
    ("regr_sxy regr_slope regr_intercept regr_r2", Partials.COVARIANCE, Trait.NONE),
    ("regr_count", Partials.COUNT, Trait.NONE),
    ("regr_avgx regr_avgy", Partials.AVERAGE, Trait.NONE),
    ("max_by min_by", Partials.EXTREME, Trait.IGNORES_DUPLICATES),
    ("first last", Partials.BY_EVENT_TIME, Trait.ORDER_BY),
    ("collect_list", None, Trait.ORDER_BY | Trait.SKIPS_NULLS),
    ("listagg", None, Trait.ORDER_BY | Trait.WITHIN_GROUP),
    ("approx_count_distinct collect_set", None, Trait.IGNORES_DUPLICATES),
    ("mode percentile_cont percentile_disc", None, Trait.WITHIN_GROUP),
    ("median", None, Trait.UNARY),
)
"""Names, what is kept, traits. Of functions that are not here all arguments are kept."""

_SYNONYMS = {
    "any": "bool_or",
    "any_value": "first",
    "approx_percentile": "percentile_approx",
    "array_agg": "collect_list",
    "every": "bool_and",
    "first_value": "first",
    "last_value": "last",
    "mean": "avg",
    "some": "bool_or",
    "std": "stddev_samp",
    "stddev": "stddev_samp",
    "string_agg": "listagg",
    "variance": "var_samp",
    # Names that only other systems have.
    "approx_distinct": "approx_count_distinct",
    "approx_median": "percentile_approx",
    "approx_percentile_cont": "percentile_approx",
    "approx_percentile_cont_with_weight": "percentile",
    "covar": "covar_samp",
    "var": "var_samp",
    "var_population": "var_pop",
    "var_sample": "var_samp",
}


def _refusal(name: str) -> tuple[str, str] | None:
    if name.startswith("kll_"):
        return (
            f"{name}() keeps a random part of its values: a replayed epoch would give other rows",
            "use percentile(column, 0.5) or percentile_approx(column, 0.5)",
        )
    if name in ("grouping", "grouping_id"):
        return (
            f"{name}() tells which columns a grouping set leaves out, and there are none here",
            "group by the columns themselves",
        )
    return None


def _table() -> dict[str, AggregateFunction]:
    table = {
        name: AggregateFunction(name, refusal=_refusal(name)) for name in spark_functions.AGGREGATES
    }
    for names, partials, traits in _DESCRIBED:
        table |= {name: AggregateFunction(name, partials, traits) for name in names.split()}
    table |= {synonym: table[name] for synonym, name in _SYNONYMS.items()}
    for name in ("approx_percentile_cont", "approx_percentile_cont_with_weight"):
        table[name] = replace(table[name], traits=Trait.WITHIN_GROUP)
    return table


AGGREGATES: Mapping[str, AggregateFunction] = _table()
"""Every aggregate function by all its names."""


def aggregate_function(name: str) -> AggregateFunction:
    """What is known about the function of a name; of a user's function nothing is."""
    return AGGREGATES.get(name) or AggregateFunction(name)


def spark_name(name: str) -> str:
    """The name that Spark knows a function by, aggregate or not."""
    is_foreign = name in _SYNONYMS and name not in spark_functions.AGGREGATES
    return _SYNONYMS[name] if is_foreign else name
