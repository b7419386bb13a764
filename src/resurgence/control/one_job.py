"""The one job of `resurgence run`, in the form of a controller: for the console.

It reads what the controller of a service would, and can stop the job. All other changes belong to
the terminal that runs it, and are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from pydantic import JsonValue

from resurgence.clock import Clock
from resurgence.control.background import Lane, in_thread
from resurgence.control.controller import Controller, JobView, NewJob, WorkerView
from resurgence.control.definitions.job_definition import JobDefinition
from resurgence.control.jobs.context import JobContext
from resurgence.control.jobs.job_record import JobRecord, JobStatus, PipelineRecord, StopMode
from resurgence.control.store.metadata import MetadataStore, NoSuchJob
from resurgence.control.telemetry.job_metrics import JobMetrics
from resurgence.engine.preview import PreviewedTable
from resurgence.errors import RunsInATerminal
from resurgence.graph.model import Graph
from resurgence.ids import JobName


class OneJob(Controller):
    """A controller whose only job is supervised elsewhere in this process."""

    def __init__(
        self,
        definition: JobDefinition,
        ctx: JobContext,
        metadata: MetadataStore,
        metrics: JobMetrics,
        clock: Clock,
        began_at: datetime,
    ) -> None:
        self._definition = definition
        self._ctx = ctx
        self._metadata = metadata
        self._metrics = metrics
        self._clock = clock
        self._began_at = began_at
        self._lane = Lane(3)

    @property
    def can_only_stop(self) -> bool:
        return True

    @property
    def address(self) -> str:
        return ""

    def other_controllers(self) -> tuple[str, ...]:
        return ()

    async def owner_elsewhere(self, name: JobName) -> str | None:
        return None

    # ---------------------------------------------------------------- views

    async def jobs(self) -> list[JobView]:
        return [await self.job(self._definition.name)]

    async def job(self, name: JobName) -> JobView:
        definition = self._definition
        if name != definition.name:
            raise NoSuchJob(f"job '{name}' does not exist", hint=f"Use {definition.name}.")
        stored = await in_thread(self._metadata.job, name)
        functions = None
        if definition.functions_file is not None:
            functions = await in_thread(definition.functions_file.read_text, "utf-8")
        record = JobRecord(
            name,
            PipelineRecord(definition.sql, definition.state_url, functions),
            self._ctx.requests.desired,
            stored.status if stored else JobStatus(),
            self._began_at,
        )
        return JobView(record, self._progress())

    def _progress(self) -> dict[str, JsonValue]:
        ctx, incident = self._ctx, self._ctx.incidents.open
        dies = None
        if ctx.worker.handle is not None:
            dies = self._metrics.if_it_dies_now(ctx.model.started_rows.values())
        allowed = ctx.definition.settings.pipeline.allowed_restarts
        return {
            **self._metrics.progress(self._clock.now()),
            "restarts_left": max(0, allowed - ctx.history.restarts),
            "if_it_dies_now": dies.as_json() if dies else None,
            "incident": incident.facts() if incident else None,
        }

    async def _require_job(self, name: JobName) -> None:
        await self.job(name)

    async def workers(self) -> list[WorkerView]:
        handle = self._ctx.worker.handle
        if handle is None:
            return []
        return [
            WorkerView(
                worker=handle.record,
                job=self._definition.name,
                state="active",
                phase=handle.phase,
                started_at=handle.started_at,
                last_heard_at=handle.last_heard_at,
                log_file=handle.log_file,
                executors=handle.executors,
            )
        ]

    async def log_files(self, name: JobName) -> list[Path]:
        await self._require_job(name)
        handle = self._ctx.worker.handle
        return [handle.log_file] if handle is not None else []

    async def _compiled(
        self, name: JobName, pipeline: PipelineRecord
    ) -> tuple[JobDefinition, Graph]:
        if pipeline.functions is not None and name != self._definition.name:
            raise self._refusal()
        return self._definition, await in_thread(self._definition.compile, pipeline.sql)

    async def compiled_text(
        self, sql: str, functions: str | None, settings: dict[str, str]
    ) -> Graph:
        # Its functions are those of the file that the command was given, whatever was typed.
        return await in_thread(self._definition.compile, sql)

    # ---------------------------------------------------------------- requests

    async def stop(self, name: JobName, mode: StopMode) -> JobView:
        await self._require_job(name)
        self._ctx.requests.request_stop(mode)
        return await self.job(name)

    async def create(self, new: NewJob) -> JobView:
        raise self._refusal()

    async def edit(
        self, name: JobName, sql: str, functions: str | None, settings: dict[str, str]
    ) -> JobView:
        raise self._refusal()

    async def preview(
        self, sql: str, functions: str | None, settings: dict[str, str], query: str
    ) -> PreviewedTable:
        raise self._refusal()

    async def _change(
        self,
        name: JobName,
        change: Callable[[JobRecord], object],
        pipeline: PipelineRecord | None = None,
    ) -> JobView:
        raise self._refusal()

    async def start(self, name: JobName) -> JobView:
        raise self._refusal()

    def _refusal(self) -> RunsInATerminal:
        return RunsInATerminal(
            f"'{self._definition.name}' runs in a terminal, by `resurgence run`",
            hint="Run that command again with other flags, or serve the job with "
            "`resurgence serve`.",
        )
