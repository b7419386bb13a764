"""UNION ALL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from resurgence.graph.specs.base import Definition, Spec
from resurgence.ids import OperatorId


class UnionSpec(Spec):
    """All rows of several inputs, with columns matched by position and named as in the first."""

    kind: Literal["union"] = "union"
    inputs: tuple[OperatorId, ...]

    is_transparent: ClassVar[bool] = True

    @property
    def input_ids(self) -> tuple[OperatorId, ...]:
        return self.inputs

    def definition(self, needed: set[str] | None) -> Definition:
        return Definition(["union"], None)

    def explain(self, parallelism: int) -> Iterator[str]:
        yield f"{self.id}: union"
        yield f"  inputs       {', '.join(self.inputs)}"
        yield "  state        none"
