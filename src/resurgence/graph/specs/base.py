"""What the spec of every operator can tell: what it reads, what it keeps, how it is explained."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlglot.dialects.spark import Spark
from sqlglot.tokens import TokenType

from resurgence.durations import duration_text as duration_text
from resurgence.graph.values import Value
from resurgence.ids import OperatorId
from resurgence.secrets import shown_value

_SPARK = Spark()


@dataclass(frozen=True)
class Definition:
    """What makes the values of an operator's output, for the identity of those that read it."""

    parts: list[Any]
    """As JSON."""
    reads: set[str] | None
    """The columns of its inputs that count; None: all."""

    @classmethod
    def reading_names(cls, parts: list[Any]) -> Definition:
        """A definition whose expressions name all columns that they read."""
        return cls(parts, column_names(parts))


class Spec(Value):
    """One node of the graph: what an operator is, and nothing of how it runs."""

    id: OperatorId

    has_state: ClassVar[bool] = False
    """It keeps rows in a state table."""
    is_transparent: ClassVar[bool] = False
    """It keeps nothing, and computes its rows from those of its inputs alone."""
    is_durable: ClassVar[bool] = False
    """It has something in a checkpoint."""
    aligns_inputs: ClassVar[bool] = False
    """It keeps nothing, so all rows that meet in it must come in one epoch."""
    shuffles: ClassVar[str | None] = None
    """The shuffles that it adds to the Spark job of whatever reads it, in words."""

    @property
    @abstractmethod
    def input_ids(self) -> tuple[OperatorId, ...]:
        """The operators that it reads."""

    @property
    def row_ids(self) -> tuple[OperatorId, ...]:
        """Those among its inputs whose rows it passes on."""
        return self.input_ids

    @property
    def rows_in_words(self) -> str:
        """What the Spark job of an operator that is fed by this one reads."""
        return self.id

    @property
    def job_in_words(self) -> str:
        """What its own Spark job does, if it has one."""
        return ""

    @abstractmethod
    def definition(self, needed: set[str] | None) -> Definition:
        """What makes the values of the columns that are needed, or of all of them."""

    @abstractmethod
    def explain(self, parallelism: int) -> Iterator[str]:
        """What it does and what it keeps, line by line."""


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
    """A table's name as part of an operator's id."""
    return re.sub(r"[^a-z0-9_]", "_", table.lower())


def place_of(connector: str, options: Mapping[str, str]) -> str:
    """Where the rows of a table are."""
    return f"{connector} {shown_value('path', options.get('path', ''))}".strip()


def options_in_words(options: Mapping[str, str]) -> str:
    """The options of a table, without secrets."""
    shown = ", ".join(f"{key} = {shown_value(key, value)}" for key, value in options.items())
    return f" ({shown})" if shown else ""


def subtasks_in_words(parallelism: int) -> str:
    return f"{parallelism} subtask" if parallelism == 1 else f"{parallelism} subtasks"
