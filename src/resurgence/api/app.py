"""The REST API: a thin layer over a controller, without rules about jobs.

Requests change the desired state and are answered at once; the job converges. The OpenAPI
description is at /openapi.json, and as a page at /docs.
"""

from __future__ import annotations

from fastapi import FastAPI, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from resurgence import __version__
from resurgence.api.access.gate import Gate
from resurgence.api.access.guard import Guard
from resurgence.api.access.key_ring import KeyRing
from resurgence.api.error_answer import failure_of
from resurgence.api.job_routes import job_routes
from resurgence.api.long_polls import LongPolls
from resurgence.api.readiness import Readiness
from resurgence.api.service_routes import open_routes, service_routes
from resurgence.control.controller import Controller

_DESCRIPTION = "Create, monitor, change, stop and delete the jobs of a Resurgence service."


def make_app(
    controller: Controller, guard: Guard, ring: KeyRing, polls: LongPolls | None = None
) -> FastAPI:
    """Return the application. At shutdown, `polls.close()` ends the requests that wait."""
    app = FastAPI(
        title="Resurgence",
        version=__version__,
        description=_DESCRIPTION,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
    )
    requires_key = [Security(HTTPBearer(auto_error=False, description="An API key."))]
    app.include_router(job_routes(controller, polls or LongPolls()), dependencies=requires_key)
    app.include_router(service_routes(controller), dependencies=requires_key)
    app.include_router(open_routes(Readiness(controller.require_writable)))
    # FastAPI handles these two by default; the gate answers all other errors.
    app.add_exception_handler(HTTPException, _respond)
    app.add_exception_handler(RequestValidationError, _respond)
    app.add_middleware(Gate, guard=guard, ring=ring)
    return app


async def _respond(_request: Request, error: Exception) -> JSONResponse:
    return failure_of(error).response()
