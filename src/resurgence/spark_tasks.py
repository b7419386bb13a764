"""The type of a function that runs in a Spark task, from Arrow batches to Arrow batches, and the
subtask that it runs as.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import TaskContext

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def current_subtask() -> int:
    """Return the index of the current task; 0 outside of a task."""
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0
