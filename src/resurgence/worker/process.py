"""The worker's process: `python -m resurgence.worker.process HOST PORT WORKER GENERATION`.

The JVM starts before anything else is imported, so that both load in parallel: most of a cold start
is loading. For that reason this module imports next to nothing. Token, log file and Spark settings
are passed in the environment, in the variables that this module names.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resurgence.engine.spark.jvm import JvmProcess

TOKEN_VARIABLE = "RESURGENCE_WORKER_TOKEN"
LOG_VARIABLE = "RESURGENCE_WORKER_LOG"
SPARK_VARIABLE = "RESURGENCE_WORKER_SPARK"
"""The user's Spark settings as JSON, with references instead of secrets."""

DEFAULT_MEMORY = "2g"


def start_worker_jvm(spark: Mapping[str, str], name: str) -> JvmProcess:
    """Launch a JVM with these Spark settings, without a session."""
    from resurgence.engine.spark.session import launch
    from resurgence.secrets import open_options

    conf = dict(open_options("spark", spark).values)
    return launch(
        app_name=f"resurgence {name}",
        master=conf.pop("spark.master", f"local[{max(2, os.cpu_count() or 2)}]"),
        memory=conf.pop("spark.driver.memory", DEFAULT_MEMORY),
        conf=conf,
        log_file=Path(os.environ.get(LOG_VARIABLE, os.devnull)),
    )


def _start_jvm_early() -> Future[JvmProcess] | None:
    """Start the JVM in parallel with the imports. An error is raised when the JVM is needed."""
    text = os.environ.pop(SPARK_VARIABLE, None)
    if text is None:
        return None
    future: Future[JvmProcess] = Future()

    def run() -> None:
        try:
            future.set_result(start_worker_jvm(json.loads(text), "worker"))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, name="jvm start", daemon=True).start()
    return future


def main() -> None:
    """Entry point of the process."""
    # Ctrl-C at a terminal signals the whole process group, but only the controller orders a stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jvm = _start_jvm_early()
    from resurgence.worker.main import run

    host, port, worker, generation = sys.argv[1:5]
    status = run((host, int(port)), worker, int(generation), jvm)
    sys.stdout.flush()
    # Threads may hang forever and must not delay the exit. The JVM exits when its standard input
    # closes.
    os._exit(status)


if __name__ == "__main__":
    main()
