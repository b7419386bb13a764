"""The paths under /v1/jobs: a request is checked, handed to the controller, and answered at once."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse

from resurgence.api.access.literal_secrets import (
    require_no_literal_secret_in_url,
    require_no_literal_secrets,
    require_no_literal_secrets_in,
)
from resurgence.api.declared import CHANGE_ERRORS, PLAIN_TEXT, READ_ERRORS
from resurgence.api.error_answer import Refusal
from resurgence.api.job_answer import (
    event_answer,
    job_answer,
    job_detail_answer,
    rollback_answer,
)
from resurgence.api.log_tail import last_lines, lines_after
from resurgence.api.long_polls import LONGEST_WAIT, LongPolls
from resurgence.api.models import (
    JOB_NAME,
    Incidents,
    JobDetail,
    JobEvents,
    JobRequest,
    Jobs,
    PipelineRequest,
    RescaleRequest,
    RestartRequest,
    Rollback,
    RollbackRequest,
    StopRequest,
)
from resurgence.control.background import in_thread
from resurgence.control.controller import Controller, JobView, NewJob
from resurgence.ids import Epoch, JobName

Name = Annotated[
    str, Path(pattern=JOB_NAME, max_length=100, description="The job.", examples=["rides"])
]
Limit = Annotated[int, Query(ge=1, le=1000, description="Most entries of the answer.")]
_LARGEST_NUMBER = 2**63 - 1
Offset = Annotated[int | None, Query(ge=0, le=_LARGEST_NUMBER, description="A byte offset.")]
_STOP, _RESTART = StopRequest(), RestartRequest()
LOG_HEADERS = {
    "X-Log-Offset": "Where the log goes on: give it as `after`.",
    "X-Log-Worker": "Whose log this is: give it as `worker`.",
    "X-Log-Newest": "The worker that was started last.",
}


def job_routes(controller: Controller, polls: LongPolls) -> APIRouter:
    """All that can be asked about a job, and of it."""
    reading = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=READ_ERRORS)
    changing = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=CHANGE_ERRORS)
    _add_changes(changing, controller)
    _add_views(reading, controller)
    _add_history(reading, controller, polls)
    routes = APIRouter()
    routes.include_router(reading)
    routes.include_router(changing)
    return routes


def _add_changes(routes: APIRouter, controller: Controller) -> None:
    @routes.post("", status_code=201)
    async def create(new: JobRequest) -> JobDetail:
        """Create a job. It runs at once unless `start` is false."""
        await _require_storable(new.sql, new.settings, new.state_url)
        made = NewJob(
            name=JobName(new.name),
            sql=new.sql,
            functions=new.functions,
            settings=dict(new.settings),
            state_url=new.state_url,
            start=new.start,
        )
        return await _detail(await controller.create(made))

    @routes.put("/{name}/pipeline", status_code=202)
    async def edit(name: Name, pipeline: PipelineRequest) -> JobDetail:
        """Replace the pipeline, with its functions and settings. What the edit does not touch
        keeps its state.
        """
        await _require_storable(pipeline.sql, pipeline.settings, None)
        return await _detail(
            await controller.edit(
                JobName(name), pipeline.sql, pipeline.functions, dict(pipeline.settings)
            )
        )

    @routes.post("/{name}/stop", status_code=202)
    async def stop(name: Name, how: Annotated[StopRequest, Body()] = _STOP) -> JobDetail:
        """Stop the job. A harder mode than before wins, a softer one does not."""
        return await _detail(await controller.stop(JobName(name), how.mode))

    @routes.post("/{name}/start", status_code=202)
    async def start(name: Name) -> JobDetail:
        """Let the job run; nothing changes if it does."""
        return await _detail(await controller.start(JobName(name)))

    @routes.post("/{name}/restart", status_code=202)
    async def restart(name: Name, how: Annotated[RestartRequest, Body()] = _RESTART) -> JobDetail:
        """Begin a new run, from whatever state the job is in."""
        return await _detail(
            await controller.restart(
                JobName(name), force=how.force, without_state=how.without_state
            )
        )

    @routes.post("/{name}/rescale", status_code=202)
    async def rescale(name: Name, to: RescaleRequest) -> JobDetail:
        """Go on with another number of subtasks."""
        return await _detail(await controller.rescale(JobName(name), to.parallelism))

    @routes.post("/{name}/rollback", status_code=202)
    async def rollback(name: Name, to: RollbackRequest) -> JobDetail:
        """Go back to an earlier checkpoint: sinks take back what was committed after it. A job that
        runs goes on from there, one that is stopped stays so.
        """
        return await _detail(
            await controller.rollback(
                JobName(name), Epoch(to.to_epoch), accept_duplicates=to.accept_duplicates
            )
        )

    @routes.delete("/{name}", status_code=202)
    async def delete(
        name: Name,
        with_state: Annotated[bool, Query(description="Its checkpoints go, too.")] = False,
    ) -> JobDetail:
        """Stop the job at once and forget it."""
        return await _detail(await controller.delete(JobName(name), with_state=with_state))


def _add_views(routes: APIRouter, controller: Controller) -> None:
    @routes.get("")
    async def jobs() -> Jobs:
        """All jobs, by name."""
        views = sorted(await controller.jobs(), key=lambda view: view.record.name)
        return Jobs(jobs=[job_answer(view) for view in views])

    @routes.get("/{name}")
    async def job(name: Name) -> JobDetail:
        """A job with its pipeline."""
        return await _detail(await controller.job(JobName(name)))

    @routes.get("/{name}/rollback", responses=CHANGE_ERRORS)
    async def rollback(
        name: Name,
        to_epoch: Annotated[
            int, Query(ge=0, le=_LARGEST_NUMBER, description="The checkpoint; 0: the beginning.")
        ],
    ) -> Rollback:
        """What a rollback would do; nothing is changed."""
        return rollback_answer(await controller.preview_rollback(JobName(name), Epoch(to_epoch)))


def _add_history(routes: APIRouter, controller: Controller, polls: LongPolls) -> None:
    @routes.get("/{name}/events")
    async def events(
        request: Request,
        name: Name,
        after: Annotated[
            int, Query(ge=0, le=_LARGEST_NUMBER, description="The id of the last event seen.")
        ] = 0,
        limit: Limit = 100,
        wait: Annotated[
            float,
            Query(
                ge=0,
                le=LONGEST_WAIT,
                allow_inf_nan=False,
                description="Seconds to wait for an event if there is none.",
            ),
        ] = 0,
    ) -> JobEvents:
        """What happened after an event, oldest first."""
        found = await polls.wait_for(
            lambda: controller.events(JobName(name), after, limit), wait, request.is_disconnected
        )
        return JobEvents(events=[event_answer(each) for each in found])

    @routes.get("/{name}/incidents")
    async def incidents(name: Name, limit: Limit = 100) -> Incidents:
        """The job's newest incidents, oldest first."""
        return Incidents(incidents=await controller.incidents(JobName(name), limit))

    @routes.get(
        "/{name}/logs",
        response_class=Response,
        responses={
            200: {
                "description": "Text of the log.",
                "content": PLAIN_TEXT,
                "headers": {
                    key: {"description": text, "schema": {"type": "string"}}
                    for key, text in LOG_HEADERS.items()
                },
            }
        },
    )
    async def logs(
        name: Name,
        lines: Annotated[int, Query(ge=1, le=10_000, description="Most lines.")] = 200,
        worker: Annotated[
            str | None,
            Query(
                pattern=r"^[A-Za-z0-9_.-]{1,200}$", description="By default the one started last."
            ),
        ] = None,
        after: Offset = None,
    ) -> PlainTextResponse:
        """The end of a worker's log, or what stands after an offset; one megabyte at most."""
        files = {file.stem: file for file in await controller.log_files(JobName(name))}
        if not files and worker is None:
            return PlainTextResponse("")
        newest = next(reversed(files), "")
        file = files.get(worker or newest)
        if file is None:
            raise Refusal(404, "worker.unknown", f"the job has no log of a worker '{worker}'")
        if after is None:
            part = await in_thread(last_lines, file, lines)
        else:
            part = await in_thread(lines_after, file, after)
        headers = (str(part.next_offset), file.stem, newest)
        return PlainTextResponse(part.text, headers=dict(zip(LOG_HEADERS, headers, strict=True)))


async def _detail(view: JobView) -> JobDetail:
    return await in_thread(job_detail_answer, view)


async def _require_storable(sql: str, settings: dict[str, str], state_url: str | None) -> None:
    """Nothing secret is ever stored."""
    require_no_literal_secrets_in(settings)
    if state_url is not None:
        require_no_literal_secret_in_url(state_url)
    await in_thread(require_no_literal_secrets, sql)
