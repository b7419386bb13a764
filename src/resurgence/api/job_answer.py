"""Conversion of controller views to response models. Secrets are masked here."""

from __future__ import annotations

from collections.abc import Sequence

from resurgence.api.models import (
    Desired,
    Job,
    JobDetail,
    JobEvent,
    PipelineDetail,
    Rollback,
    RollbackSink,
    RollbackSource,
    SinkDetail,
    Sinks,
    Status,
    WorkerDetail,
)
from resurgence.control.controller import JobView, WorkerView
from resurgence.control.jobs.rollback_preview import RollbackPreview
from resurgence.control.store.metadata import StoredEvent
from resurgence.graph.specs.sink import SinkSpec
from resurgence.secrets import shown_value
from resurgence.sql.syntax.masking import masked_sql


def job_answer(view: JobView) -> Job:
    """Return a job without its pipeline."""
    record = view.record
    status, desired = record.status, record.desired
    return Job(
        name=record.name,
        desired=Desired(
            wanted=desired.wanted,
            stop_mode=desired.stop_mode,
            parallelism=desired.parallelism,
            run=desired.run,
        ),
        status=Status(
            state=status.state,
            cause=status.cause,
            parallelism=status.parallelism,
            run=status.run,
            generation=status.generation,
            identity=status.identity,
            worker_pid=status.worker.pid if status.worker else None,
            failure=status.failure,
            changed_at=status.changed_at,
        ),
        progress=view.progress,
        created_at=record.created_at,
    )


def job_detail_answer(view: JobView) -> JobDetail:
    """Return a job with its pipeline. Masking a long text is slow: keep it off the event loop."""
    pipeline = view.record.pipeline
    shown = PipelineDetail(
        sql=masked_sql(pipeline.sql),
        functions=pipeline.functions,
        settings={key: shown_value(key, value) for key, value in pipeline.settings.items()},
        state_url=shown_value("", pipeline.state_url),
    )
    return JobDetail(**job_answer(view).model_dump(), pipeline=shown)


def event_answer(stored: StoredEvent) -> JobEvent:
    return JobEvent.model_validate({**stored.event, "id": stored.id})


def worker_answer(view: WorkerView, controller: str = "") -> WorkerDetail:
    """Return a worker. `controller` is the address of the one that has it, if there are several."""
    return WorkerDetail(
        worker=view.worker.worker,
        generation=view.worker.generation,
        pid=view.worker.pid,
        job=view.job,
        state=view.state,
        phase=view.phase,
        started_at=view.started_at,
        last_heard_at=view.last_heard_at,
        executors=list(view.executors),
        controller=controller or None,
    )


def sinks_answer(sinks: Sequence[SinkSpec]) -> Sinks:
    """Return the tables that a job writes. Two statements that write one table are one sink."""
    return Sinks(
        sinks=[
            SinkDetail(table=each.table, connector=each.connector, guarantee=each.guarantee)
            for each in {each.table: each for each in sinks}.values()
        ]
    )


def rollback_answer(preview: RollbackPreview) -> Rollback:
    """Return the effects of a rollback."""
    first, last = preview.undone or (None, None)
    return Rollback(
        to_epoch=preview.to_epoch,
        first_undone=first,
        last_undone=last,
        last_held=preview.held,
        rows=preview.rows,
        sinks=[
            RollbackSink(table=each.table, rows=each.rows, retracts=each.retracts)
            for each in preview.sinks
        ],
        sources=[
            RollbackSource(operator=each.operator, offset=each.offset, rows=each.rows)
            for each in preview.sources
        ],
    )
