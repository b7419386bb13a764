"""The routes under /v1/jobs: check a request, pass it to the controller, respond at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse

from resurgence.api.access.literal_secrets import (
    require_no_literal_secret_in_url,
    require_no_literal_secrets,
    require_no_literal_secrets_in,
)
from resurgence.api.dead_letter_answer import (
    correction_of,
    letters_answer,
    replayed_answer,
    rows_answer,
)
from resurgence.api.declared import CHANGE_ERRORS, PLAIN_TEXT, READ_ERRORS
from resurgence.api.error_answer import Refusal
from resurgence.api.job_answer import (
    event_answer,
    job_answer,
    job_detail_answer,
    rollback_answer,
    sinks_answer,
)
from resurgence.api.log_tail import last_lines, lines_after
from resurgence.api.long_polls import MAX_WAIT_SECONDS, LongPolls
from resurgence.api.models import (
    JOB_NAME,
    LETTER_ID,
    DeadLetters,
    Incidents,
    JobDetail,
    JobEvents,
    JobRequest,
    Jobs,
    LetterQuery,
    LetterRows,
    PipelineRequest,
    Replayed,
    ReplayOrder,
    RescaleRequest,
    RestartRequest,
    Rollback,
    RollbackRequest,
    Sinks,
    StopRequest,
)
from resurgence.api.other_controllers import forward, is_forwarded
from resurgence.control.background import in_thread
from resurgence.control.controller import Controller, JobView, NewJob
from resurgence.control.store.metadata import StoredEvent
from resurgence.ids import Epoch, JobName
from resurgence.state.inspection.dead_letters import LetterFilter
from resurgence.state.inspection.query_process import confined
from resurgence.state.inspection.state_queries import query_letters

Name = Annotated[
    str,
    Path(pattern=JOB_NAME, max_length=100, description="The name of the job.", examples=["rides"]),
]
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries.")]
_MAX_INTEGER = 2**63 - 1
Offset = Annotated[int | None, Query(ge=0, le=_MAX_INTEGER, description="A byte offset.")]
_STOP, _RESTART = StopRequest(), RestartRequest()
LOG_HEADERS = {
    "X-Log-Offset": "The offset after this text. Pass it as `after`.",
    "X-Log-Worker": "The worker whose log this is. Pass it as `worker`.",
    "X-Log-Newest": "The worker that was started last.",
}


def job_routes(controller: Controller, polls: LongPolls) -> APIRouter:
    """Return the routes that read and change jobs."""
    reading = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=READ_ERRORS)
    changing = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=CHANGE_ERRORS)
    _add_changes(changing, controller)
    _add_views(reading, controller)
    _add_history(reading, controller, polls)
    _add_dead_letters(reading, changing, controller)
    routes = APIRouter()
    routes.include_router(reading)
    routes.include_router(changing)
    return routes


def _add_changes(routes: APIRouter, controller: Controller) -> None:
    @routes.post("", status_code=201)
    async def create(new: JobRequest) -> JobDetail:
        """Create a job. It starts at once unless `start` is false."""
        await _require_storable(new.sql, new.settings, new.state_url)
        job = NewJob(
            name=JobName(new.name),
            sql=new.sql,
            functions=new.functions,
            settings=dict(new.settings),
            state_url=new.state_url,
            start=new.start,
        )
        return await _detail(await controller.create(job))

    @routes.put("/{name}/pipeline", status_code=202)
    async def edit(name: Name, pipeline: PipelineRequest) -> JobDetail:
        """Replace the pipeline, its functions and its settings. Operators that the edit does not
        touch keep their state.
        """
        await _require_storable(pipeline.sql, pipeline.settings, None)
        return await _detail(
            await controller.edit(
                JobName(name), pipeline.sql, pipeline.functions, dict(pipeline.settings)
            )
        )

    @routes.post("/{name}/stop", status_code=202)
    async def stop(name: Name, how: Annotated[StopRequest, Body()] = _STOP) -> JobDetail:
        """Stop the job. `force` overrides an earlier `checkpoint`, but not the reverse."""
        return await _detail(await controller.stop(JobName(name), how.mode))

    @routes.post("/{name}/start", status_code=202)
    async def start(name: Name) -> JobDetail:
        """Start the job. This has no effect if it is running."""
        return await _detail(await controller.start(JobName(name)))

    @routes.post("/{name}/restart", status_code=202)
    async def restart(name: Name, how: Annotated[RestartRequest, Body()] = _RESTART) -> JobDetail:
        """Start a new run, whatever state the job is in."""
        return await _detail(
            await controller.restart(
                JobName(name), force=how.force, without_state=how.without_state
            )
        )

    @routes.post("/{name}/rescale", status_code=202)
    async def rescale(name: Name, to: RescaleRequest) -> JobDetail:
        """Change the parallelism of the job."""
        return await _detail(await controller.rescale(JobName(name), to.parallelism))

    @routes.post("/{name}/rollback", status_code=202)
    async def rollback(name: Name, to: RollbackRequest) -> JobDetail:
        """Roll back to an earlier checkpoint. Sinks retract the output committed after it. A
        running job resumes from the checkpoint, a stopped job stays stopped.
        """
        return await _detail(
            await controller.rollback(
                JobName(name), Epoch(to.to_epoch), accept_duplicates=to.accept_duplicates
            )
        )

    @routes.delete("/{name}", status_code=202)
    async def delete(
        name: Name,
        with_state: Annotated[bool, Query(description="Delete its checkpoints, too.")] = False,
    ) -> JobDetail:
        """Stop the job at once and delete it."""
        return await _detail(await controller.delete(JobName(name), with_state=with_state))


def _add_views(routes: APIRouter, controller: Controller) -> None:
    @routes.get("")
    async def jobs() -> Jobs:
        """List all jobs, by name."""
        views = sorted(await controller.jobs(), key=lambda view: view.record.name)
        return Jobs(jobs=[job_answer(view) for view in views])

    @routes.get("/{name}")
    async def job(name: Name) -> JobDetail:
        """Return a job with its pipeline."""
        return await _detail(await controller.job(JobName(name)))

    @routes.get("/{name}/sinks", responses=CHANGE_ERRORS)
    async def sinks(name: Name) -> Sinks:
        """List the tables that a job writes, with their delivery guarantees."""
        return sinks_answer(await controller.sinks(JobName(name)))

    @routes.get("/{name}/rollback", responses=CHANGE_ERRORS)
    async def rollback(
        name: Name,
        to_epoch: Annotated[
            int, Query(ge=0, le=_MAX_INTEGER, description="The epoch to roll back to, or 0.")
        ],
    ) -> Rollback:
        """Preview a rollback. Nothing is changed."""
        return rollback_answer(await controller.preview_rollback(JobName(name), Epoch(to_epoch)))


def _add_history(routes: APIRouter, controller: Controller, polls: LongPolls) -> None:
    @routes.get("/{name}/events")
    async def events(
        request: Request,
        name: Name,
        after: Annotated[
            int, Query(ge=0, le=_MAX_INTEGER, description="The id of the last event seen.")
        ] = 0,
        limit: Limit = 100,
        wait: Annotated[
            float,
            Query(
                ge=0,
                le=MAX_WAIT_SECONDS,
                allow_inf_nan=False,
                description="Seconds to wait for an event if there is none.",
            ),
        ] = 0,
    ) -> JobEvents:
        """Return the events after an event, oldest first."""
        job = JobName(name)

        async def look() -> Sequence[StoredEvent]:
            return await controller.events(job, after, limit)

        if wait <= 0:
            return JobEvents(events=[event_answer(each) for each in await look()])
        with controller.following(job) as news:
            found = await polls.wait_for(look, wait, request.is_disconnected, news)
        return JobEvents(events=[event_answer(each) for each in found])

    @routes.get("/{name}/incidents")
    async def incidents(name: Name, limit: Limit = 100) -> Incidents:
        """Return the newest incidents of the job, oldest first."""
        return Incidents(incidents=await controller.incidents(JobName(name), limit))

    @routes.get(
        "/{name}/logs",
        response_class=Response,
        responses={
            200: {
                "description": "The text of the log.",
                "content": PLAIN_TEXT,
                "headers": {
                    key: {"description": text, "schema": {"type": "string"}}
                    for key, text in LOG_HEADERS.items()
                },
            }
        },
    )
    async def logs(
        request: Request,
        name: Name,
        lines: Annotated[int, Query(ge=1, le=10_000, description="Maximum number of lines.")] = 200,
        worker: Annotated[
            str | None,
            Query(
                pattern=r"^[A-Za-z0-9_.-]{1,200}$",
                description="By default the worker started last.",
            ),
        ] = None,
        after: Offset = None,
    ) -> Response:
        """Return the end of a worker's log, or the text after an offset; at most one megabyte. The
        logs are those on the machine of the controller that runs the job.
        """
        owner = None if is_forwarded(request) else await controller.owner_elsewhere(JobName(name))
        if owner is not None:
            return await forward(request, owner, tuple(LOG_HEADERS))
        files = {file.stem: file for file in await controller.log_files(JobName(name))}
        if not files and worker is None:
            return PlainTextResponse("")
        newest = next(reversed(files), "")
        file = files.get(worker or newest)
        if file is None:
            raise Refusal(404, "worker.unknown", f"the job has no log of worker '{worker}'")
        if after is None:
            part = await in_thread(last_lines, file, lines)
        else:
            part = await in_thread(lines_after, file, after)
        headers = (str(part.next_offset), file.stem, newest)
        return PlainTextResponse(part.text, headers=dict(zip(LOG_HEADERS, headers, strict=True)))


def _add_dead_letters(reading: APIRouter, changing: APIRouter, controller: Controller) -> None:
    @reading.get("/{name}/dead-letters")
    async def dead_letters(
        name: Name,
        epoch: Annotated[
            int | None, Query(ge=0, le=_MAX_INTEGER, description="Only those of an epoch.")
        ] = None,
        operator: Annotated[
            str | None, Query(max_length=200, description="Only those of an operator or a source.")
        ] = None,
        letter: Annotated[
            str | None, Query(alias="id", pattern=LETTER_ID, description="Only this one.")
        ] = None,
        limit: Limit = 100,
    ) -> DeadLetters:
        """Return the newest dead letters of the job, oldest first."""
        ids = None if letter is None else frozenset({letter})
        wanted = LetterFilter(epoch, operator, ids)
        letters = await controller.dead_letters(JobName(name), wanted, limit)
        return await in_thread(letters_answer, letters)

    @changing.post("/{name}/dead-letters/query")
    async def query(name: Name, query: LetterQuery) -> LetterRows:
        """Query the table dead_letters, read-only: a key with the role `read` is enough. The query
        has bounded memory and time, and runs alone.
        """
        found = await controller.read_state(
            JobName(name), confined, query_letters, query.sql, query.limit
        )
        return await in_thread(rows_answer, found)

    @changing.post("/{name}/dead-letters/replay", status_code=202)
    async def replay(name: Name, order: ReplayOrder) -> Replayed:
        """Read dead letters again, as input of a later epoch, exactly once."""
        ids = None if order.chosen_ids is None else frozenset(order.chosen_ids)
        wanted = LetterFilter(order.epoch, order.operator, ids)
        letters = await controller.dead_letters(JobName(name), wanted)
        corrected = {each.id: correction_of(each) for each in order.corrected}
        return replayed_answer(
            await controller.replay(JobName(name), letters.rows, corrected, again=order.again)
        )


async def _detail(view: JobView) -> JobDetail:
    return await in_thread(job_detail_answer, view)


async def _require_storable(sql: str, settings: dict[str, str], state_url: str | None) -> None:
    """Raise if the request contains a literal secret."""
    require_no_literal_secrets_in(settings)
    if state_url is not None:
        require_no_literal_secret_in_url(state_url)
    await in_thread(require_no_literal_secrets, sql)
