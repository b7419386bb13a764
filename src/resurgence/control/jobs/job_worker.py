"""The worker of a job: acquires it, sends it orders, tears it down."""

from __future__ import annotations

from collections.abc import Mapping

from resurgence.control.definitions.job_definition import JobDefinition
from resurgence.control.detection.running_job_model import RunningJobModel
from resurgence.control.jobs.job_record import WorkerRecord
from resurgence.control.jobs.wake_up import WakeUp
from resurgence.control.telemetry.events import EventLog
from resurgence.control.workers.channel import Receive
from resurgence.control.workers.worker_pool import Origin, WorkerHandle, WorkerPool
from resurgence.engine.spark.connector_jars import serves
from resurgence.graph.model import Graph
from resurgence.ids import Generation, WorkerId
from resurgence.state.load_plan import LoadPlan
from resurgence.worker.messages import Message, StartExecution


class JobWorker:
    """Holds at most one worker at a time. Reports its exit to the failure detector."""

    def __init__(
        self,
        pool: WorkerPool,
        model: RunningJobModel,
        events: EventLog,
        wake_up: WakeUp,
    ) -> None:
        self._pool = pool
        self._model = model
        self._events = events
        self._wake_up = wake_up
        self.handle: WorkerHandle | None = None

    @property
    def is_connected(self) -> bool:
        return self.handle is not None and self._pool.channel.is_connected(self.handle.worker)

    async def acquire(
        self,
        definition: JobDefinition,
        spark: Mapping[str, str],
        generation: Generation,
        receive: Receive,
    ) -> Origin:
        """Acquire a worker for a generation: the present one, a standby, or a new process, if it
        has these Spark settings. Its messages go to `receive`.
        """
        if self.handle is not None and (self.handle.ended or not serves(self.handle.spark, spark)):
            await self.tear_down()
        if self.handle is not None:
            origin = Origin.IN_PLACE
            self._pool.retask(self.handle, generation, receive, self._exited)
        else:
            self.handle, origin = await self._pool.acquire(
                generation, dict(spark), definition.log_file, receive, self._exited
            )
        self._expect(self.handle.record)
        return origin

    def adopt(self, definition: JobDefinition, record: WorkerRecord, receive: Receive) -> None:
        """Expect the worker of an earlier controller to connect and report its state."""
        self.handle = self._pool.adopt(
            record,
            dict(definition.settings.spark),
            definition.log_file,
            receive,
            self._exited,
        )
        self._expect(record)

    def report_start(self, origin: Origin) -> None:
        """Emit the event that the job has a worker."""
        assert self.handle is not None
        self._events.emit(
            "worker_started",
            pid=self.handle.pid,
            generation=self.handle.generation,
            worker=self.handle.worker,
            origin=origin,
        )

    async def send(self, message: Message) -> None:
        """Send the worker an order."""
        if self.handle is not None:
            await self._pool.channel.send(self.handle.worker, message)

    async def start_execution(
        self, definition: JobDefinition, graph: Graph, plan: LoadPlan
    ) -> None:
        """Order the connected worker to restore and run."""
        assert self.handle is not None
        functions = definition.functions_file
        await self.send(
            StartExecution(
                job=definition.name,
                state_url=definition.state_url,
                graph=graph,
                plan=plan,
                settings=definition.settings,
                functions_file=str(functions) if functions else None,
                token=self.handle.token,
                patience=self._pool.patience,
            ),
        )

    async def tear_down(self) -> None:
        """End the worker process of this job, if there is one."""
        if self.handle is not None:
            await self._pool.end(self.handle)
        self.handle = None

    def _expect(self, record: WorkerRecord) -> None:
        now = self._pool.detector_clock.now()
        self._model.expect(record.worker, record.generation, record.pid, now)

    async def _exited(self, worker: WorkerId, status: int | None) -> None:
        self._model.note_exit(worker, status, self._pool.detector_clock.now())
        self._wake_up.notify()
