"""The functions that exist, Spark's own and the user's, by kind."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from resurgence.errors import did_you_mean
from resurgence.graph.specs.window_aggregate import WINDOW_KINDS
from resurgence.sql.functions import spark_functions
from resurgence.sql.functions.aggregates import (
    AGGREGATES,
    AggregateFunction,
    aggregate_function,
    spark_name,
)
from resurgence.udf import FunctionKind, registered_name

WINDOWS = tuple(kind for kind, traits in WINDOW_KINDS.items() if traits.has_function)
EXPLODES = frozenset({"explode", "explode_outer", "unnest"})
"""Functions that return a row for every element of an array."""
GENERATORS = frozenset({"posexplode", "posexplode_outer", "inline", "inline_outer"})
"""Functions that return a row of several columns for every element of an array."""

_SYNTAX_FUNCTIONS = frozenset({"timestampadd", "timestampdiff"})
"""Functions in Spark's grammar that are not in its registry."""


class Call(Enum):
    """The kind of a call."""

    SCALAR = auto()
    AGGREGATE = auto()
    WINDOW = auto()
    WINDOW_FUNCTION = auto()
    EXPLODE = auto()
    TABLE_GENERATOR = auto()
    UNKNOWN = auto()


_KINDS: dict[str, Call] = {
    **dict.fromkeys(spark_functions.SCALARS | _SYNTAX_FUNCTIONS, Call.SCALAR),
    **dict.fromkeys(spark_functions.TABLE_GENERATORS, Call.TABLE_GENERATOR),
    **dict.fromkeys(EXPLODES | GENERATORS, Call.EXPLODE),
    **dict.fromkeys(spark_functions.WINDOW_FUNCTIONS, Call.WINDOW_FUNCTION),
    **dict.fromkeys(AGGREGATES, Call.AGGREGATE),
    **dict.fromkeys(WINDOWS, Call.WINDOW),
}


class FunctionCatalog:
    """A classification of calls by name, ignoring case. The user's functions take precedence over
    Spark's.
    """

    def __init__(self, user: Mapping[str, FunctionKind]) -> None:
        self._user = {name.lower(): (name, kind) for name, kind in user.items()}

    def classify(self, name: str) -> Call:
        lower = name.lower()
        if lower in self._user:
            return Call.AGGREGATE if self._user[lower][1] is FunctionKind.AGGREGATE else Call.SCALAR
        return _KINDS.get(lower, Call.UNKNOWN)

    def is_user_defined(self, name: str) -> bool:
        return name.lower() in self._user

    def spelling(self, name: str) -> str:
        """Return the user's own spelling of their function, lower case for Spark's."""
        lower = name.lower()
        return self._user[lower][0] if lower in self._user else lower

    def called(self, name: str) -> str:
        """Return Spark's name for a function."""
        if self.is_user_defined(name):
            return registered_name(self.spelling(name))
        return spark_name(name.lower())

    def aggregate(self, name: str) -> AggregateFunction:
        """Return the properties of an aggregate function."""
        return aggregate_function(self.called(name) if self.is_user_defined(name) else name.lower())

    def suggestion(self, name: str) -> str:
        """Return a hint for the name of an unknown function."""
        own = [spelling for spelling, _ in self._user.values()]
        aggregates = sorted(each for each, known in AGGREGATES.items() if not known.refusal)
        return did_you_mean(name, [*own, *spark_functions.SCALARS, *aggregates, *WINDOWS])
