"""`list`, `show`, `incidents` and `workers`: the jobs of a service as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated

import typer

from resurgence.api.models import Job, JobDetail, WorkerDetail
from resurgence.cli.output.plain_table import span_text, table_lines
from resurgence.cli.service_client import DEFAULT_SERVER, Facts, ServiceClient
from resurgence.cli.service_flags import (
    AsJson,
    Debug,
    JobArgument,
    KeyFile,
    Server,
    call_service,
)
from resurgence.engine.spark.executors import Executor

_TASKS = ("active", "completed", "failed")


def list_command(
    as_json: AsJson = False,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """List the jobs of the service."""

    def command(client: ServiceClient) -> int:
        jobs = client.jobs()
        if as_json:
            print(json.dumps([each.model_dump(mode="json") for each in jobs], indent=2))
        elif not jobs:
            print("there are no jobs")
        else:
            header = (
                *("job", "state", "desired", "parallelism"),
                *("epoch", "rows in", "since", "cause"),
            )
            now = datetime.now(UTC)
            _print(table_lines(header, [_cells(each, now) for each in jobs]))
        return 0

    call_service(server, key_file, debug, command)


def show_command(
    name: JobArgument,
    as_json: AsJson = False,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """Show a job: desired state, actual state, progress and pipeline."""

    def command(client: ServiceClient) -> int:
        job = client.job(name)
        if as_json:
            print(json.dumps(job.model_dump(mode="json"), indent=2))
        else:
            _print(_description(job))
        return 0

    call_service(server, key_file, debug, command, name=name)


def incidents_command(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The job; by default all jobs.")
    ] = None,
    as_json: AsJson = False,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """List failures, from detection to resumption."""

    def command(client: ServiceClient) -> int:
        found = client.incidents(name)
        if as_json:
            print(json.dumps(found, indent=2))
        elif not found:
            print("there are no incidents")
        else:
            header = ("job", "detected", "kind", "domain", "restored", "replayed", "took", "reason")
            _print(table_lines(header, [_incident_cells(each) for each in found]))
        return 0

    call_service(server, key_file, debug, command, name=name)


def workers_command(
    as_json: AsJson = False,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """List the worker processes, and the executors of those that run on a Spark cluster."""

    def command(client: ServiceClient) -> int:
        answer = client.workers()
        found = answer.workers
        for each in answer.unreachable:
            print(f"warning: the controller at {each} does not respond", file=sys.stderr)
        if as_json:
            print(json.dumps([each.model_dump(mode="json") for each in found], indent=2))
        elif not found:
            print("there are no workers")
        else:
            header = ("worker", "job", "state", "phase", "pid", "generation", "age", "last heard")
            now = datetime.now(UTC)
            cells = [_worker_cells(each, now) for each in found]
            if any(each.controller for each in found):
                with_controller = [
                    (*row, each.controller) for row, each in zip(cells, found, strict=True)
                ]
                _print(table_lines((*header, "controller"), with_controller))
            else:
                _print(table_lines(header, cells))
            executors = [_executor_cells(each, one) for each in found for one in each.executors]
            if executors:
                titles = ("worker", "executor", "host", "cores", "state", *_TASKS, "reason")
                print()
                _print(table_lines(titles, executors))
        return 0

    call_service(server, key_file, debug, command)


def _cells(job: Job, now: datetime) -> tuple[object, ...]:
    return (
        job.name,
        str(job.status.state),
        str(job.desired.wanted),
        job.desired.parallelism,
        _number(job.progress.get("epoch")),
        _number(job.progress.get("rows_in")),
        span_text(now - job.status.changed_at if job.status.changed_at else None),
        job.status.cause,
    )


def _description(job: JobDetail) -> Iterator[str]:
    yield f"{job.name}: {job.status.state}, desired {job.desired.wanted}"
    facts: dict[str, object] = {
        "cause": job.status.cause,
        "parallelism": job.desired.parallelism,
        "run": job.desired.run,
        "generation": job.status.generation,
        "identity": job.status.identity,
        "worker": f"pid {job.status.worker_pid}" if job.status.worker_pid else None,
        "created": _instant(job.created_at),
        "changed": _instant(job.status.changed_at) if job.status.changed_at else None,
        "state URL": job.pipeline.state_url,
    }
    yield from _section("", facts)
    yield from _section("failure", job.status.failure or {})
    yield from _section("progress", {**job.progress, "lag": _lag_text(job.progress)})
    yield from _lag_lines(job.progress)
    yield from _section("settings", job.pipeline.settings)
    yield ""
    yield job.pipeline.sql.rstrip()
    if job.pipeline.functions:
        yield ""
        yield job.pipeline.functions.rstrip()


def _lag_text(progress: Mapping[str, object]) -> str | None:
    lag = progress.get("lag")
    if not isinstance(lag, dict):
        return None
    seconds = lag.get("seconds")
    age = f", {seconds:,.1f} s" if isinstance(seconds, int | float) else ""
    return f"{lag.get('rows', 0):,} rows{age}"


def _lag_lines(progress: Mapping[str, object]) -> Iterator[str]:
    """Yield the lag of the partitions that are furthest behind."""
    lag = progress.get("lag")
    partitions = lag.get("partitions") if isinstance(lag, dict) else None
    if isinstance(partitions, list) and partitions:
        yield "lag"
        cells = [
            (each["table"], each["partition"], each["rows"], each["seconds"]) for each in partitions
        ]
        header = ("table", "partition", "rows", "seconds")
        yield from (f"  {line}" for line in table_lines(header, cells))


def _section(title: str, facts: Mapping[str, object]) -> Iterator[str]:
    known = {key: value for key, value in facts.items() if value not in (None, "")}
    if not known:
        return
    if title:
        yield title
    width = max(map(len, known))
    for key, value in known.items():
        text = value if isinstance(value, str) else json.dumps(value)
        yield f"  {key.ljust(width)}  {text}"


def _incident_cells(incident: Facts) -> tuple[object, ...]:
    phases = incident.get("phases")
    seconds = (
        [each for each in phases.values() if isinstance(each, int | float)]
        if isinstance(phases, dict)
        else []
    )
    took = f"{sum(seconds):.1f} s" if seconds else None
    return (
        incident.get("job"),
        incident.get("detected_at"),
        incident.get("kind"),
        incident.get("domain"),
        _number(incident.get("restored_epoch")),
        _number(incident.get("replayed_rows")),
        took if incident.get("resumed_at") else "ongoing",
        incident.get("reason"),
    )


def _worker_cells(worker: WorkerDetail, now: datetime) -> tuple[object, ...]:
    heard = worker.last_heard_at
    return (
        worker.worker,
        worker.job,
        worker.state,
        worker.phase,
        str(worker.pid),
        worker.generation,
        span_text(now - worker.started_at),
        span_text(now - heard if heard else None),
    )


def _executor_cells(worker: WorkerDetail, executor: Executor) -> tuple[object, ...]:
    return (
        worker.worker,
        executor.id,
        executor.host,
        executor.cores,
        str(executor.state),
        executor.active_tasks,
        executor.completed_tasks,
        executor.failed_tasks,
        executor.reason,
    )


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")


def _print(lines: Iterator[str]) -> None:
    for line in lines:
        print(line)
