"""What runs inside a Spark task: a function from Arrow batches to Arrow batches, that knows its
subtask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import TaskContext

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def current_subtask() -> int:
    """The index of the task that this runs in."""
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0
