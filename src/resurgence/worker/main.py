"""The worker process: `python -m resurgence.worker.main HOST PORT WORKER GENERATION`, token in the
environment.

It starts Spark while it waits for its order, restores, and runs epochs until the input ends, it is
told to stop, or something fails. It never decides about recovery: it says what happened and exits.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from resurgence.clock import SystemClock
from resurgence.engine.epoch import Engine, EpochReport
from resurgence.engine.jvm import JvmProcess
from resurgence.engine.pipeline import Pipeline
from resurgence.engine.session import start_session
from resurgence.engine.spark_errors import SparkGone, failed_subtask, translate
from resurgence.engine.user_functions import register_functions
from resurgence.errors import DamagedState, ResurgenceError, Retired, SqlError
from resurgence.graph.secrets import Concealer, concealer_for
from resurgence.ids import Epoch, Generation, WorkerId
from resurgence.state.backend import StateBackend
from resurgence.state.key_groups import shuffle_partitions
from resurgence.state.verification import Verification
from resurgence.storage.object_store import shared_store
from resurgence.testing.faults import FaultInjector, parse_faults
from resurgence.udf import load_functions
from resurgence.worker.connection import ControlConnection
from resurgence.worker.messages import (
    CheckpointDamaged,
    EpochCommitted,
    EpochSealed,
    EpochStarted,
    Heartbeat,
    InputFinished,
    StartExecution,
    StateRestored,
    TaskFailedEvent,
    WorkerConnected,
    WorkerStopped,
)
from resurgence.worker.upkeep import Upkeep

TOKEN_VARIABLE = "RESURGENCE_WORKER_TOKEN"
LOG_VARIABLE = "RESURGENCE_WORKER_LOG"
_IDLE_POLL = timedelta(milliseconds=50)
_ORDER_DEADLINE = timedelta(minutes=1)

log = logging.getLogger("resurgence.worker")


class ConcealingFormatter(logging.Formatter):
    """Lines of the log, stack traces included, without the secrets of the job's tables."""

    concealer = Concealer({})

    def format(self, record: logging.LogRecord) -> str:
        return self.concealer.text(super().format(record))


class Worker:
    """One job's worker, for one generation."""

    def __init__(
        self,
        connection: ControlConnection,
        worker: WorkerId,
        generation: Generation,
        log_format: ConcealingFormatter,
    ) -> None:
        self._connection = connection
        self._log_format = log_format
        self._worker = worker
        self._generation = generation
        self._clock = SystemClock()
        self._engine: Engine | None = None
        self._phase = "start"
        self._phase_began_at = self._clock.now()
        self._jvm: JvmProcess | None = None
        self._spark: SparkSession | None = None

    def run(self) -> int:
        """Start, restore, run. The exit status is 0 unless something failed."""
        self._connection.send(
            WorkerConnected(
                worker=self._worker,
                generation=self._generation,
                token=os.environ.pop(TOKEN_VARIABLE, ""),
                pid=os.getpid(),
            )
        )
        self._connection.listen()
        try:
            order = self._connection.first_order(_ORDER_DEADLINE)
        except queue.Empty:
            log.error("no order came; leaving")
            return 1
        self._connection.beat(order.settings.pipeline.heartbeat_interval, self._heartbeat)
        sources = (each.options for each in order.graph.sources())
        sinks = (each.options for each in order.graph.sinks())
        self._log_format.concealer = concealer_for([*sources, *sinks])
        try:
            self._execute(order)
        except Exception as error:
            self._report(error)
            return 1
        return 0

    def _execute(self, order: StartExecution) -> None:
        began = time.monotonic()
        seconds: dict[str, float] = {}
        plan, settings = order.plan, order.settings
        functions = load_functions(Path(order.functions_file) if order.functions_file else None)
        conf = dict(settings.spark)
        self._spark, self._jvm = start_session(
            app_name=f"resurgence {order.job}",
            master=conf.pop("spark.master", f"local[{max(2, os.cpu_count() or 2)}]"),
            memory=conf.pop("spark.driver.memory", "2g"),
            shuffle_partitions=shuffle_partitions(plan.parallelism),
            conf=conf,
            log_file=Path(os.environ.get(LOG_VARIABLE, os.devnull)),
        )
        seconds["spark"] = time.monotonic() - began
        self._watch_jvm(self._jvm)
        register_functions(self._spark, functions)
        store = shared_store(order.state_url)
        backend = StateBackend(store, order.job)
        faults = FaultInjector(parse_faults(settings.faults), store, order.job)
        engine = Engine(
            pipeline=Pipeline(
                self._spark, order.graph, order.state_url, backend.paths, plan.parallelism
            ),
            backend=backend,
            plan=plan,
            settings=settings,
            faults=faults,
            clock=self._clock,
            entered=lambda: self._connection.send(self._heartbeat()),
        )
        self._engine = engine
        engine.restore()
        seconds["restore"] = time.monotonic() - began - seconds["spark"]
        self._connection.send(
            StateRestored(
                worker=self._worker,
                generation=self._generation,
                epoch=plan.epoch,
                committed_pending=plan.commit_pending,
                seconds=seconds,
            )
        )
        upkeep = Upkeep(
            backend, engine, settings.checkpoint, plan.generation, faults, self._found_damage
        )
        while not engine.finished:
            if self._connection.stop_asked.is_set():
                upkeep.finish()
                self._connection.send(
                    WorkerStopped(
                        worker=self._worker, generation=self._generation, epoch=engine.epoch
                    )
                )
                return
            report = engine.run_epoch(self._started, self._sealed, self._committed)
            if report is None:
                self._connection.stop_asked.wait(_IDLE_POLL.total_seconds())
            else:
                upkeep.after(report.epoch)
        upkeep.finish()
        self._connection.send(
            InputFinished(worker=self._worker, generation=self._generation, epoch=engine.epoch)
        )

    # ---------------------------------------------------------------- reports

    def _heartbeat(self) -> Heartbeat:
        now = self._clock.now()
        if self._engine is None:
            return Heartbeat(
                worker=self._worker,
                generation=self._generation,
                epoch=Epoch(0),
                phase=self._phase,
                phase_seconds=(now - self._phase_began_at).total_seconds(),
            )
        progress = self._engine.progress
        return Heartbeat(
            worker=self._worker,
            generation=self._generation,
            epoch=progress.epoch,
            phase=progress.phase,
            phase_seconds=(now - progress.since).total_seconds(),
            operator=progress.operator,
        )

    def _started(self, epoch: Epoch, rows: int) -> None:
        self._connection.send(
            EpochStarted(worker=self._worker, generation=self._generation, epoch=epoch, rows=rows)
        )

    def _sealed(self, report: EpochReport) -> None:
        self._connection.send(
            EpochSealed(
                worker=self._worker,
                generation=self._generation,
                epoch=report.epoch,
                rows=report.rows,
                bytes=report.bytes,
                state_bytes=report.state_bytes,
                seconds=report.duration.total_seconds(),
                watermark=report.watermark,
                counts=report.counts,
            )
        )

    def _committed(self, report: EpochReport) -> None:
        self._connection.send(
            EpochCommitted(
                worker=self._worker,
                generation=self._generation,
                epoch=report.epoch,
                profile_seconds=report.profile.seconds,
                profile_calls=report.profile.calls,
            )
        )

    def _found_damage(self, found: Verification) -> None:
        self._connection.send(
            CheckpointDamaged(
                worker=self._worker,
                generation=self._generation,
                epoch=found.epoch,
                reasons=found.faults,
            )
        )

    def _report(self, error: Exception) -> None:
        failure: ResurgenceError = translate(error)
        if self._jvm is not None and not self._jvm.is_alive():
            failure = SparkGone("the JVM that runs Spark is gone")
        log.error("failed: %s", failure.message, exc_info=error)
        conceal = self._log_format.concealer.text
        progress = self._engine.progress if self._engine else None
        self._connection.send(
            TaskFailedEvent(
                worker=self._worker,
                generation=self._generation,
                operator=progress.operator if progress else None,
                subtask=failed_subtask(self._spark) if self._spark else None,
                epoch=progress.epoch if progress else Epoch(0),
                error=conceal(failure.message),
                hint=conceal(failure.hint),
                code=failure.code,
                domain=failure.domain,
                retry_hint=failure.retry_hint,
                damaged_path=failure.path if isinstance(failure, DamagedState) else None,
                line=failure.line if isinstance(failure, SqlError) else None,
                column=failure.column if isinstance(failure, SqlError) else None,
            )
        )
        if isinstance(failure, Retired):
            log.error("retired: touching nothing more")

    def _watch_jvm(self, jvm: JvmProcess) -> None:
        """Report at once when the JVM dies under a call that might wait for it."""

        def watch() -> None:
            while jvm.is_alive():
                time.sleep(0.1)
            self._report(SparkGone("the JVM that runs Spark is gone"))
            os._exit(1)

        threading.Thread(target=watch, name="jvm", daemon=True).start()


def main() -> None:
    """Entry point of the process."""
    host, port, worker, generation = sys.argv[1:5]
    # Ctrl-C at a terminal goes to the whole process group; stopping is the controller's to order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log_format = ConcealingFormatter("%(asctime)s %(name)s %(levelname)s %(message)s")
    handler = logging.StreamHandler()
    handler.setFormatter(log_format)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    connection = ControlConnection((host, int(port)))
    status = Worker(connection, WorkerId(worker), Generation(int(generation)), log_format).run()
    sys.stdout.flush()
    # Threads may stand still for ever; they must not hold up the end. The JVM ends with its
    # standard input.
    os._exit(status)


if __name__ == "__main__":
    main()
