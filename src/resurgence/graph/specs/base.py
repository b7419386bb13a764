"""The base of all operator specs: inputs, state, identity and EXPLAIN output."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import TokenType

from resurgence.durations import duration_text as duration_text
from resurgence.graph.values import Value
from resurgence.ids import OperatorId
from resurgence.secrets import shown_value

_SPARK = Spark()


@dataclass(frozen=True)
class Definition:
    """What determines an operator's output, for its identity and that of its readers."""

    parts: list[Any]
    """JSON values."""
    reads: set[str] | None
    """The columns of its inputs that it depends on, or None for all."""

    @classmethod
    def reading_names(cls, parts: list[Any]) -> Definition:
        """Return a definition whose expressions name all columns that they read."""
        return cls(parts, column_names(parts))


class Spec(Value):
    """One node of the graph: the definition of an operator, without its execution."""

    id: OperatorId

    has_state: ClassVar[bool] = False
    """It stores rows in a state table."""
    is_transparent: ClassVar[bool] = False
    """It is stateless: its output depends only on the rows of its inputs in the epoch."""
    is_durable: ClassVar[bool] = False
    """It writes to checkpoints."""
    aligns_inputs: ClassVar[bool] = False
    """It combines rows without state, so they must arrive in the same epoch."""
    shuffles: ClassVar[str | None] = None
    """The shuffles that it adds to the Spark job of a downstream operator, for EXPLAIN."""

    @property
    @abstractmethod
    def input_ids(self) -> tuple[OperatorId, ...]:
        """The operators that it reads."""

    @property
    def row_ids(self) -> tuple[OperatorId, ...]:
        """Those of its inputs whose rows it passes on."""
        return self.input_ids

    @property
    def rows_in_words(self) -> str:
        """The input of a downstream operator's Spark job, for EXPLAIN."""
        return self.id

    @property
    def job_in_words(self) -> str:
        """The work of its Spark job if it has one, for EXPLAIN."""
        return ""

    @property
    def may_have_one_row_per_group(self) -> bool:
        """Whether its state may have one row per group, which the job of a sink can write."""
        return False

    @abstractmethod
    def definition(self, needed: set[str] | None) -> Definition:
        """Return what determines the values of the needed columns, or of all if None."""

    @abstractmethod
    def explain(self, parallelism: int) -> Iterator[str]:
        """Yield the lines of EXPLAIN output."""


def column_names(definition: object) -> set[str]:
    """Return the columns that the expressions of a definition read. The planner quotes every name
    in them.
    """
    if isinstance(definition, list):
        return {name for each in definition for name in column_names(each)}
    if not isinstance(definition, str):
        return set()
    tokens = _SPARK.tokenize(definition)
    return {each.text for each in tokens if each.token_type is TokenType.IDENTIFIER}


def slug(table: str) -> str:
    """Return a table's name as part of an operator id."""
    return re.sub(r"[^a-z0-9_]", "_", table.lower())


_PLACES = ("path", "topic", "table")
"""The options that name the location of rows."""


def place_of(connector: str, options: Mapping[str, str]) -> str:
    """Return the location of a table's rows."""
    place = next((options[each] for each in _PLACES if each in options), "")
    if not place and "table_name" in options:
        place = f"{options.get('namespace', '')}.{options['table_name']}"
    return f"{connector} {shown_value('path', place)}".strip()


def options_in_words(options: Mapping[str, str]) -> str:
    """Return the options of a table as text, without secrets."""
    shown = ", ".join(f"{key} = {shown_value(key, value)}" for key, value in options.items())
    return f" ({shown})" if shown else ""


def subtasks_in_words(parallelism: int) -> str:
    return f"{parallelism} subtask" if parallelism == 1 else f"{parallelism} subtasks"
