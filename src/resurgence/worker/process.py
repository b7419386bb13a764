"""The worker's process: `python -m resurgence.worker.process HOST PORT WORKER GENERATION`.

The JVM is begun before anything else is imported, so that the two load side by side: most of a cold
start is loading. Token, log file and the settings of Spark come in the environment. This module
imports next to nothing for that reason, and the controller takes the names from here.
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
"""The user's settings of Spark as JSON, with references instead of secrets."""

DEFAULT_MEMORY = "2g"


def begin_jvm(spark: Mapping[str, str], name: str) -> JvmProcess:
    """A JVM with these settings of Spark, which no session has been made in yet."""
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


def _begin_early() -> Future[JvmProcess] | None:
    """Begin the JVM beside the rest of the start; what goes wrong is told when it is needed."""
    text = os.environ.pop(SPARK_VARIABLE, None)
    if text is None:
        return None
    future: Future[JvmProcess] = Future()

    def run() -> None:
        try:
            future.set_result(begin_jvm(json.loads(text), "worker"))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, name="jvm start", daemon=True).start()
    return future


def main() -> None:
    """Entry point of the process."""
    # Ctrl-C at a terminal goes to the whole process group; stopping is the controller's to order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jvm = _begin_early()
    from resurgence.worker.main import run

    host, port, worker, generation = sys.argv[1:5]
    status = run((host, int(port)), worker, int(generation), jvm)
    sys.stdout.flush()
    # Threads may stand still for ever; they must not hold up the end. The JVM ends with its
    # standard input.
    os._exit(status)


if __name__ == "__main__":
    main()
