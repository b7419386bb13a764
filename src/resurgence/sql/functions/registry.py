"""Which functions exist and of which kind: Spark's own and the user's."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import get_args

from resurgence.errors import did_you_mean
from resurgence.graph.specs.window_aggregate import WindowKind
from resurgence.sql.functions import spark_functions
from resurgence.udf import FunctionKind, registered_name

OTHER_NAMES = {
    "approx_distinct": "approx_count_distinct",
    "approx_median": "percentile_approx",
    "approx_percentile_cont": "percentile_approx",
    "approx_percentile_cont_with_weight": "percentile",
    "covar": "covar_samp",
    "var": "var_samp",
    "var_population": "var_pop",
    "var_sample": "var_samp",
}
"""Aggregates that other systems have under another name, with Spark's name for them."""

REFUSED_AGGREGATES = {
    **{
        name: (
            f"{name}() tells which columns a grouping set leaves out, and there are none here",
            "group by the columns themselves",
        )
        for name in ("grouping", "grouping_id")
    },
    **{
        name: (
            f"{name}() keeps a random part of its values: a replayed epoch would give other rows",
            "use percentile(column, 0.5) or percentile_approx(column, 0.5)",
        )
        for name in spark_functions.AGGREGATES
        if name.startswith("kll_")
    },
}
"""Spark's aggregates that are not supported: why, and what to do instead."""

SUPPORTED_AGGREGATES = tuple(
    sorted({*spark_functions.AGGREGATES, *OTHER_NAMES} - REFUSED_AGGREGATES.keys())
)
WINDOWS = get_args(WindowKind)
EXPLODES = frozenset({"explode", "explode_outer", "unnest"})
"""A row for every element of an array."""
GENERATORS = frozenset({"posexplode", "posexplode_outer", "inline", "inline_outer"})
"""A row of several columns for every element of an array."""

_SYNTAX_FUNCTIONS = frozenset({"timestampadd", "timestampdiff"})
"""Functions that Spark's grammar knows and its registry does not."""


class Call(Enum):
    """What a call means to the planner."""

    SCALAR = auto()
    AGGREGATE = auto()
    UNSUPPORTED_AGGREGATE = auto()
    WINDOW = auto()
    WINDOW_FUNCTION = auto()
    EXPLODE = auto()
    TABLE_GENERATOR = auto()
    UNKNOWN = auto()


class FunctionCatalog:
    """Classifies calls by name, without regard to case. The user's functions come before
    Spark's.
    """

    def __init__(self, user: Mapping[str, FunctionKind]) -> None:
        self._user = {name.lower(): (name, kind) for name, kind in user.items()}

    def classify(self, name: str) -> Call:
        lower = name.lower()
        if lower in self._user:
            return Call.AGGREGATE if self._user[lower][1] is FunctionKind.AGGREGATE else Call.SCALAR
        if lower in WINDOWS:
            return Call.WINDOW
        if lower in SUPPORTED_AGGREGATES:
            return Call.AGGREGATE
        if lower in spark_functions.AGGREGATES:
            return Call.UNSUPPORTED_AGGREGATE
        if lower in spark_functions.WINDOW_FUNCTIONS:
            return Call.WINDOW_FUNCTION
        if lower in EXPLODES | GENERATORS:
            return Call.EXPLODE
        if lower in spark_functions.TABLE_GENERATORS:
            return Call.TABLE_GENERATOR
        known = lower in spark_functions.SCALARS or lower in _SYNTAX_FUNCTIONS
        return Call.SCALAR if known else Call.UNKNOWN

    def is_user_defined(self, name: str) -> bool:
        return name.lower() in self._user

    def spelling(self, name: str) -> str:
        """The user's own spelling of their function, lower case for Spark's."""
        lower = name.lower()
        return self._user[lower][0] if lower in self._user else lower

    def called(self, name: str) -> str:
        """The name that Spark knows a function by."""
        if self.is_user_defined(name):
            return registered_name(self.spelling(name))
        return OTHER_NAMES.get(name.lower(), name.lower())

    def suggestion(self, name: str) -> str:
        """A hint for a name that is no function."""
        own = [spelling for spelling, _ in self._user.values()]
        return did_you_mean(name, [*own, *spark_functions.SCALARS, *SUPPORTED_AGGREGATES, *WINDOWS])
