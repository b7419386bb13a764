"""Properties of the aggregate functions, in one table.

The planner reads from it which calls are allowed, the engine which state a group needs. The engine
owns how partial aggregates are computed and merged in Spark SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, Flag, auto

from resurgence.sql.functions import spark_functions


class Partials(Enum):
    """The partial aggregate over some rows of a group, which can be merged with others."""

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
    """The value that belongs to the least or greatest of another."""
    BY_EVENT_TIME = auto()
    """The first or last value, and its event time."""


class Trait(Flag):
    """A property of a function."""

    NONE = 0
    EXACT = auto()
    """Partials without floating-point numbers merge to the same result, bit for bit, in any order."""
    ORDER_INDEPENDENT = auto()
    """The result does not depend on the order of rows, so that a scalar subquery can use it."""
    IGNORES_DUPLICATES = auto()
    """A duplicate value does not change the result, so DISTINCT has no effect."""
    ORDER_BY = auto()
    """It returns its values in order, or one of them by its place: in the order of ORDER BY in its
    arguments, or else of event time.
    """
    WITHIN_GROUP = auto()
    """It takes an order in WITHIN GROUP."""
    SKIPS_NULLS = auto()
    """It ignores nulls, unless the call has RESPECT NULLS."""
    UNARY = auto()
    """It takes one argument."""


@dataclass(frozen=True)
class AggregateFunction:
    """One aggregate function."""

    name: str
    """Spark's name for it; of several synonyms, the canonical one."""
    partials: Partials | None = None
    """None: it cannot be merged, and the arguments of every row are buffered."""
    traits: Trait = Trait.NONE
    refusal: tuple[str, str] | None = None
    """The message and the hint for a function that is not supported."""

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
"""Names, partials, traits. Any other function has no partials: its arguments are buffered."""

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
            f"{name}() samples values at random: a replayed epoch would produce different rows",
            "Use percentile(column, 0.5) or percentile_approx(column, 0.5).",
        )
    if name in ("grouping", "grouping_id"):
        return (
            f"{name}() requires grouping sets",
            "Group by GROUPING SETS, ROLLUP or CUBE.",
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
    """Return the properties of a function; a user-defined function has none."""
    return AGGREGATES.get(name) or AggregateFunction(name)


def spark_name(name: str) -> str:
    """Return Spark's name for a function, aggregate or not."""
    is_foreign = name in _SYNONYMS and name not in spark_functions.AGGREGATES
    return _SYNONYMS[name] if is_foreign else name
