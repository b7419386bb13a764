"""The routes about the service as a whole: workers, incidents, metrics, health."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse

from resurgence import __version__
from resurgence.api.declared import OPEN_ERRORS, PLAIN_TEXT, READ_ERRORS, READY_ERRORS
from resurgence.api.job_answer import worker_answer
from resurgence.api.models import Health, Incidents, Workers
from resurgence.api.other_controllers import is_forwarded, workers_elsewhere
from resurgence.api.readiness import Readiness
from resurgence.control.controller import Controller

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def service_routes(controller: Controller) -> APIRouter:
    """Return the routes that require a key, if keys are in use."""
    routes = APIRouter(tags=["service"], responses=READ_ERRORS)

    @routes.get("/v1/workers")
    async def workers(request: Request) -> Workers:
        """List all worker processes, active or standby, of all controllers of the service."""
        found = [worker_answer(each, controller.address) for each in await controller.workers()]
        if is_forwarded(request):
            return Workers(workers=found)
        others, unreachable = await workers_elsewhere(request, controller.other_controllers())
        return Workers(workers=[*found, *others], unreachable=unreachable)

    @routes.get("/v1/incidents")
    async def incidents(
        limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries.")] = 100,
    ) -> Incidents:
        """Return the newest incidents of all jobs, oldest first."""
        return Incidents(incidents=await controller.incidents(None, limit))

    @routes.get("/metrics", response_class=Response, responses={200: {"content": PLAIN_TEXT}})
    async def metrics() -> PlainTextResponse:
        """Return the metrics of the jobs that this controller runs, in the format of Prometheus."""
        return PlainTextResponse(await controller.metrics(), media_type=_METRICS_TYPE)

    return routes


def open_routes(readiness: Readiness) -> APIRouter:
    """Return the routes that never require a key."""
    routes = APIRouter(tags=["service"], responses=OPEN_ERRORS)

    @routes.get("/health")
    async def health() -> Health:
        """Return 200 while the process is alive."""
        return Health(status="ok", version=__version__)

    @routes.get("/ready", responses=READY_ERRORS)
    async def ready() -> Health:
        """Return 200 if the service can accept writes."""
        await readiness.require()
        return Health(status="ok", version=__version__)

    return routes
