"""Normalisation of keyed changes into a changelog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from resurgence.graph.specs.base import Definition, Spec, subtasks_in_words
from resurgence.ids import OperatorId


class NormaliseSpec(Spec):
    """Converts keyed changes into a changelog with the complete row of every retraction. It stores
    the last row of each key, without TTL.
    """

    kind: Literal["normalise"] = "normalise"
    input: OperatorId
    keys: tuple[str, ...]

    has_state: ClassVar[bool] = True
    is_durable: ClassVar[bool] = True

    @property
    def input_ids(self) -> tuple[OperatorId, ...]:
        return (self.input,)

    @property
    def rows_in_words(self) -> str:
        return f"the touched keys of {self.id}"

    @property
    def job_in_words(self) -> str:
        return "one shuffle, writes state files"

    def definition(self, needed: set[str] | None) -> Definition:
        # All columns count: a normaliser that starts empty inserts its rows again, so operators
        # downstream must also start empty.
        return Definition(["normalise", *self.keys], None)

    def explain(self, parallelism: int) -> Iterator[str]:
        yield f"{self.id}: changelog by key"
        yield f"  input        {self.input}"
        yield f"  keys         {', '.join(self.keys)}"
        yield f"  parallelism  {subtasks_in_words(parallelism)}, by hash of the keys"
        yield "  state        KeyTable 'rows': the last row of each key"
        yield "  dropped      a key, when it is deleted or the table is truncated"
