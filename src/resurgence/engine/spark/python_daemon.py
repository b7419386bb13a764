"""The daemon that forks Spark's Python workers, on local masters.

It imports what nearly every task needs before it forks. As Spark does it, each worker would spend a
second of CPU on its own imports, and a JVM has four to eight workers. No library that is imported
here loses anything by the fork: the threads that NumPy and PyArrow start are restarted by their own
fork handlers.

Spark also runs a full garbage collection in its workers after every task. It would traverse all
that was ever imported, which takes longer than a small task itself. The modules imported here are
excluded from it.
"""

from __future__ import annotations

import gc
import importlib

from pyspark import daemon

_MODULES = (
    "pyspark.worker",
    "pandas",
    "pyarrow.parquet",
    "resurgence.engine.tables.group_table",
    "resurgence.engine.tables.key_table",
    "resurgence.engine.tables.time_table",
    "resurgence.connectors.formats.json.lines",
    "resurgence.connectors.single_file.source",
    "resurgence.connectors.staging",
)


def main() -> None:
    for module in _MODULES:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
