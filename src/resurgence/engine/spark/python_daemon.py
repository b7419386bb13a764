"""The daemon that forks Spark's Python workers, on local masters.

Spark runs a full garbage collection in its Python workers after every task. It traverses all that
was ever imported, pandas and PyArrow included, which takes longer than a small task itself. After
its first task, a worker therefore excludes the objects that it has by then from later collections.

Modules are imported after the fork, as Spark does it: some start threads, which a fork would lose.
"""

from __future__ import annotations

import gc
import socket

from pyspark import daemon

_run_task = daemon.worker


def _run_task_and_freeze(sock: socket.socket, authenticated: bool) -> int:
    status = _run_task(sock, authenticated)
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    return status


if __name__ == "__main__":
    daemon.worker = _run_task_and_freeze
    daemon.manager()
