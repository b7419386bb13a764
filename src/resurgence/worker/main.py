"""The worker: executes the controller's orders, in the process that `process` starts.

It waits for an order, starts Spark, restores, and runs epochs until the input ends, a stop is
requested, or something fails. It never decides about recovery: it reports what happened, and waits
for the next order if Spark is usable, else exits. A standby starts and warms up Spark before it has
a job.
"""

from __future__ import annotations

import logging
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from resurgence.clock import SystemClock
from resurgence.config import Settings
from resurgence.engine.epochs.engine import Engine, EpochReport
from resurgence.engine.epochs.lag import lag_summary
from resurgence.engine.epochs.pipeline import Pipeline
from resurgence.engine.epochs.profile import EpochProfile
from resurgence.engine.functions.user_functions import register_functions
from resurgence.engine.spark.errors import failed_subtask, gone, translate
from resurgence.engine.spark.executors import Executor, added, lost
from resurgence.engine.spark.jvm import JvmProcess
from resurgence.engine.spark.master import is_local
from resurgence.engine.spark.session import attach
from resurgence.engine.spark.warm_up import warm_up
from resurgence.errors import (
    BadRecord,
    ClusterUnavailable,
    DamagedState,
    ErrorDomain,
    OutOfMemory,
    ResurgenceError,
    SparkGone,
    SqlError,
)
from resurgence.faults import FaultInjector, parse_faults
from resurgence.ids import NO_EPOCH, Epoch, Generation, WorkerId
from resurgence.repeated_lines import CollapsingHandler
from resurgence.secrets import Concealer, concealer_for
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.verification import Verification
from resurgence.storage.access import store_access
from resurgence.storage.object_store import shared_store
from resurgence.store_settings import apply_storage_settings
from resurgence.udf import load_functions
from resurgence.worker.cluster_application import ClusterApplication
from resurgence.worker.connection import ControlConnection
from resurgence.worker.messages import (
    CheckpointDamaged,
    EpochCommitted,
    EpochProfiled,
    EpochSealed,
    EpochStarted,
    ExecutorAdded,
    ExecutorLostEvent,
    ExecutorsListed,
    Heartbeat,
    InputFinished,
    StandBy,
    StandbyReady,
    StartExecution,
    StateRestored,
    TaskFailedEvent,
    WorkerConnected,
    WorkerMessage,
    WorkerStopped,
)
from resurgence.worker.process import TOKEN_VARIABLE, start_worker_jvm
from resurgence.worker.upkeep import Upkeep

_IDLE_POLL = timedelta(milliseconds=50)
_ORDER_DEADLINE = timedelta(minutes=1)
_NEXT_ORDER_DEADLINE = timedelta(minutes=5)
"""Longer than the longest pause of a recovery."""
_MAX_REASONS = 100
_JVM_EXIT_DEADLINE = timedelta(seconds=2)
_JVM_DEADLINE = timedelta(seconds=90)
_LOCATE_DEADLINE = timedelta(seconds=20)
_MAX_TEXT_LENGTH = 20_000

log = logging.getLogger("resurgence.worker")


class ConcealingFormatter(logging.Formatter):
    """A formatter that conceals the secrets of the job's tables, also in stack traces."""

    concealer = Concealer({})

    def format(self, record: logging.LogRecord) -> str:
        return self.concealer.text(super().format(record))


class Worker:
    """A Spark driver that runs one job at a time, one generation after another."""

    def __init__(
        self,
        connection: ControlConnection,
        worker: WorkerId,
        generation: Generation,
        log_format: ConcealingFormatter,
        jvm: Future[JvmProcess] | None = None,
    ) -> None:
        """`jvm` was started with the Spark settings of the first order."""
        self._started_jvm = jvm
        self._connection = connection
        self._log_format = log_format
        self._worker = worker
        self._generation = generation
        self._token = os.environ.pop(TOKEN_VARIABLE, "")
        self._clock = SystemClock()
        self._engine: Engine | None = None
        self._is_running = False
        self._final_message: WorkerMessage | None = None
        self._phase = "start"
        self._phase_began_at = self._clock.now()
        self._jvm: JvmProcess | None = None
        self._spark: SparkSession | None = None
        self._cluster: ClusterApplication | None = None
        """None with a local master."""

    def run(self) -> int:
        """Execute orders until one ends, or fails in a way that requires a new process. Return the
        exit status: 0 unless something failed.
        """
        self._connection.greeting = self._greeting
        self._connection.send(self._identification())
        self._connection.listen()
        deadline: timedelta | None = _ORDER_DEADLINE
        while True:
            try:
                order = self._connection.next_order(deadline)
            except queue.Empty:
                log.error("no order received in time; exiting")
                return 1
            self._connection.beat(order.settings.pipeline.heartbeat_interval, self._heartbeat)
            try:
                if isinstance(order, StandBy):
                    self._stand_by(order)
                    deadline = None
                    continue
                self._begin(order)
                self._execute(order)
            except Exception as error:
                if not self._report(error):
                    return 1
                deadline = _NEXT_ORDER_DEADLINE
            else:
                self._connection.wait_until_sent()
                return 0

    def _stand_by(self, order: StandBy) -> None:
        began = time.monotonic()
        spark = self._session(order.settings, "standby")
        started = time.monotonic()
        if self._cluster is None:
            # Executors of a cluster cannot read the input of the warm-up.
            warm_up(spark)
        seconds = {"spark": started - began, "warm_up": time.monotonic() - started}
        self._enter("standby")
        self._connection.send(
            StandbyReady(worker=self._worker, generation=self._generation, seconds=seconds)
        )

    def _begin(self, order: StartExecution) -> None:
        """Become the worker of the generation in the order."""
        self._is_running = False
        self._engine = None
        self._final_message = None
        self._enter("start")
        self._generation = order.plan.generation
        self._token = order.token
        self._connection.patience = order.patience
        apply_storage_settings(order.settings.storage)
        self._connection.new_address = self._owner_address(order)
        sources = (each.options for each in order.graph.sources())
        sinks = (each.options for each in order.graph.sinks())
        lookups = (each.options for each in order.graph.lookup_tables())
        self._log_format.concealer = concealer_for(
            [*sources, *sinks, *lookups, order.settings.spark, *_store_secrets(order)]
        )

    def _owner_address(self, order: StartExecution) -> Callable[[], tuple[str, int] | None]:
        """Return a function that looks up where the owner of the job listens for workers."""
        leases = StateBackend(shared_store(order.state_url), order.job).leases

        def look_up() -> tuple[str, int] | None:
            try:
                return leases.control_address(order.plan.generation)
            except ResurgenceError as error:
                log.warning("cannot look up the owner of the job: %s", error.message)
                return None

        return look_up

    def _session(self, settings: Settings, name: str) -> SparkSession:
        """Return the Spark session: started at the first order, reused by all later ones."""
        if self._spark is None:
            self._jvm = (
                self._started_jvm.result(_JVM_DEADLINE.total_seconds())
                if self._started_jvm is not None
                else start_worker_jvm(settings.spark, name)
            )
            tempfile.tempdir = str(self._jvm.directory)
            if is_local(self._jvm.master):
                self._spark = attach(self._jvm)
                self._watch_jvm(self._jvm)
            else:
                self._cluster = ClusterApplication(
                    self._jvm.master, settings.pipeline, self._report_executors, self._abandon
                )
                with self._cluster.deadline():
                    self._spark = attach(self._jvm)
                    self._watch_jvm(self._jvm)
                    self._cluster.open(self._spark)
        else:
            # Spark jobs of a failed engine may still be running.
            self._spark.sparkContext.cancelAllJobs()
        return self._spark

    def _abandon(self, failure: ResurgenceError) -> None:
        """Report a failure, and exit, even if a call of Spark is waiting."""
        self._report(failure)
        os._exit(1)

    def _execute(self, order: StartExecution) -> None:
        began = time.monotonic()
        seconds: dict[str, float] = {}
        plan, settings = order.plan, order.settings
        functions = load_functions(Path(order.functions_file) if order.functions_file else None)
        spark = self._session(settings, order.job)
        seconds["spark"] = time.monotonic() - began
        register_functions(spark, functions)
        store = shared_store(order.state_url)
        backend = StateBackend(store, order.job)
        faults = FaultInjector(parse_faults(settings.faults), store, order.job)
        engine = Engine(
            pipeline=Pipeline(
                spark, order.graph, order.state_url, backend.paths, plan.parallelism, plan.dead
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
        self._is_running = True
        self._connection.send(self._status(plan.commit_pending, seconds))
        upkeep = Upkeep(
            backend, engine, settings.checkpoint, plan.generation, faults, self._found_damage
        )
        while not engine.finished:
            if self._connection.stop_requested.is_set():
                break
            report = engine.run_epoch(self._started, self._sealed, self._committed, self._profiled)
            if report is None:
                engine.flush(self._clock.now())
                self._connection.stop_requested.wait(_IDLE_POLL.total_seconds())
            else:
                upkeep.after(report.epoch, report.checkpoint)
        if not engine.finished:
            engine.flush()
        engine.close()
        upkeep.finish()
        if self._cluster is not None:
            # While the controller still waits for this worker.
            self._cluster.release()
        ended = InputFinished if engine.finished else WorkerStopped
        self._send_final(
            ended(worker=self._worker, generation=self._generation, epoch=engine.epoch)
        )

    # ---------------------------------------------------------------- identification and status

    def _identification(self) -> WorkerConnected:
        return WorkerConnected(
            worker=self._worker, generation=self._generation, token=self._token, pid=os.getpid()
        )

    def _status(self, committed_pending: bool, seconds: dict[str, float]) -> StateRestored:
        assert self._engine is not None
        return StateRestored(
            worker=self._worker,
            generation=self._generation,
            epoch=self._engine.epoch,
            committed_pending=committed_pending,
            seconds=seconds,
        )

    def _greeting(self) -> tuple[WorkerConnected, list[WorkerMessage]]:
        status: list[WorkerMessage] = [self._status(False, {})] if self._is_running else []
        if self._cluster is not None:
            status.append(self._listed(self._cluster.executors))
        final = [self._final_message] if self._final_message else []
        return self._identification(), status + final

    def _send_final(self, message: WorkerMessage) -> None:
        self._final_message = message
        self._connection.send(message)

    def _enter(self, phase: str) -> None:
        self._phase = phase
        self._phase_began_at = self._clock.now()

    # ---------------------------------------------------------------- reports

    def _heartbeat(self) -> Heartbeat:
        now = self._clock.now()
        engine = self._engine
        if engine is None:
            return Heartbeat(
                worker=self._worker,
                generation=self._generation,
                epoch=Epoch(0),
                phase=self._phase,
                phase_seconds=(now - self._phase_began_at).total_seconds(),
            )
        progress = engine.progress
        return Heartbeat(
            worker=self._worker,
            generation=self._generation,
            epoch=progress.epoch,
            phase=progress.phase,
            phase_seconds=(now - progress.since).total_seconds(),
            operator=progress.operator,
        )

    def _started(self, epoch: Epoch, rows: int) -> None:
        assert self._engine is not None
        self._connection.send(
            EpochStarted(
                worker=self._worker,
                generation=self._generation,
                epoch=epoch,
                rows=rows,
                replay=self._engine.replay_of(epoch),
            )
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
                cache_hits=report.cache.hits,
                cache_misses=report.cache.misses,
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
                phases=report.timeline.by_work(),
                operators=report.timeline.by_operator(),
                lag=lag_summary(report.lag),
            )
        )

    def _profiled(self, profile: EpochProfile) -> None:
        self._connection.send(
            EpochProfiled(worker=self._worker, generation=self._generation, profile=profile)
        )

    def _listed(self, executors: tuple[Executor, ...]) -> ExecutorsListed:
        return ExecutorsListed(
            worker=self._worker, generation=self._generation, executors=executors
        )

    def _report_executors(self, before: tuple[Executor, ...], now: tuple[Executor, ...]) -> None:
        self._connection.send(self._listed(now))
        for each in added(before, now):
            self._connection.send(
                ExecutorAdded(worker=self._worker, generation=self._generation, executor=each)
            )
        for each in lost(before, now):
            self._connection.send(
                ExecutorLostEvent(
                    worker=self._worker,
                    generation=self._generation,
                    epoch=self._engine.progress.epoch if self._engine else NO_EPOCH,
                    executor=each,
                )
            )

    def _found_damage(self, found: Verification) -> None:
        self._connection.send(
            CheckpointDamaged(
                worker=self._worker,
                generation=self._generation,
                epoch=found.epoch,
                reasons=found.faults[:_MAX_REASONS],
            )
        )

    def _report(self, error: Exception) -> bool:
        """Report a failure; return whether this worker can take another order."""
        failure: ResurgenceError = translate(error)
        if self._jvm is not None and self._has_ended(self._jvm, failure):
            failure = gone(self._jvm.exit_status(_JVM_EXIT_DEADLINE))
        usable = self._is_usable(failure)
        log.error("failed: %s", failure.message, exc_info=error)

        def conceal(text: str) -> str:
            shown = self._log_format.concealer.text(text)
            return shown[:_MAX_TEXT_LENGTH].encode(errors="replace").decode()

        progress = self._engine.progress if self._engine else None
        subtask = failed_subtask(self._spark) if self._spark else None
        position = failure.position or self._locate(failure)
        self._is_running = False
        self._engine = None
        self._enter("failed")
        self._send_final(
            TaskFailedEvent(
                worker=self._worker,
                generation=self._generation,
                operator=progress.operator if progress else None,
                subtask=subtask,
                epoch=progress.epoch if progress else Epoch(0),
                error=conceal(failure.message),
                hint=conceal(failure.hint),
                code=failure.code,
                domain=failure.domain,
                retry_hint=failure.retry_hint,
                damaged_path=failure.path if isinstance(failure, DamagedState) else None,
                line=failure.line if isinstance(failure, SqlError) else None,
                column=failure.column if isinstance(failure, SqlError) else None,
                traceback=conceal(failure.traceback),
                position=conceal(position),
                worker_usable=usable,
            )
        )
        return usable

    def _locate(self, failure: ResurgenceError) -> str:
        """Return the input position of the record on which the user's code or expression failed."""
        engine = self._engine
        if engine is None or failure.domain is not ErrorDomain.USER or self._is_stopped():
            return ""
        if engine.progress.phase != "execute" or isinstance(failure, BadRecord):
            return ""
        try:
            return engine.locate(failure, _LOCATE_DEADLINE)
        except Exception:
            log.exception("cannot locate the failing record")
            return ""

    def _has_ended(self, jvm: JvmProcess, failure: ResurgenceError) -> bool:
        """Return whether the end of the JVM, or of Spark in it, caused the failure."""
        if isinstance(failure, ClusterUnavailable):
            return False
        return isinstance(failure, SparkGone) or not jvm.is_alive() or self._is_stopped()

    def _is_usable(self, failure: ResurgenceError) -> bool:
        """Return whether Spark can be reused. What exhausted the memory may still occupy it."""
        spoilt = (SparkGone, OutOfMemory, ClusterUnavailable)
        return not isinstance(failure, spoilt) and not self._is_stopped()

    def _is_stopped(self) -> bool:
        try:
            return self._spark is None or bool(self._spark.sparkContext._jsc.sc().isStopped())
        except Exception:
            return True

    def _watch_jvm(self, jvm: JvmProcess) -> None:
        """Report the death of the JVM at once, even if a call is waiting for it."""

        def watch() -> None:
            while jvm.is_alive():
                time.sleep(0.1)
            self._abandon(gone(jvm.exit_status(timedelta(0))))

        threading.Thread(target=watch, name="jvm", daemon=True).start()


def _store_secrets(order: StartExecution) -> list[dict[str, str]]:
    """Return the options of the object stores that a job writes to and looks up."""
    sinks = (each.options.get("path", "") for each in order.graph.sinks())
    lookups = (each.options.get("path", "") for each in order.graph.lookup_tables())
    urls = {order.state_url, *sinks, *lookups}
    return [dict(store_access(url).options) for url in urls]


def run(
    address: tuple[str, int], worker: str, generation: int, jvm: Future[JvmProcess] | None
) -> int:
    """Run a worker to its end; return the exit status."""
    log_format = ConcealingFormatter("%(asctime)s %(name)s %(levelname)s %(message)s")
    handler = logging.StreamHandler()
    handler.setFormatter(log_format)
    logging.basicConfig(level=logging.WARNING, handlers=[CollapsingHandler(handler)])
    connection = ControlConnection(address)
    return Worker(connection, WorkerId(worker), Generation(generation), log_format, jvm).run()
