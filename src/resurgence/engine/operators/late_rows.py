"""The rows that are late for a window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from resurgence.engine.operators.base import Operator, OperatorContext
from resurgence.engine.operators.windows.window_operator import WindowOperator
from resurgence.graph.specs.late_rows import LateRowsSpec

if TYPE_CHECKING:
    from resurgence.engine.epochs.epoch_run import EpochRun


class LateRowsOperator(Operator):
    """Late rows, by the state of the window before the epoch."""

    spec: LateRowsSpec

    def __init__(
        self, spec: LateRowsSpec, inputs: Sequence[DataFrame], context: OperatorContext
    ) -> None:
        super().__init__(spec, inputs, context)
        self.spec = spec
        self.shape = inputs[0]

    def output(self, run: EpochRun) -> DataFrame | None:
        window = run.operators[self.spec.window]
        assert isinstance(window, WindowOperator)
        rows = run.rows(self.spec.input)
        return None if rows is None else window.late(rows, run)
