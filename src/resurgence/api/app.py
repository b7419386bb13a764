"""The REST API: a thin shell around a controller. No rules about jobs here.

Requests change what is wanted and are answered at once; the job converges. The description of the
API is at /openapi.json, and for people at /docs.
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

_DESCRIPTION = "Jobs of a Resurgence service: create, watch, change, stop and delete them."


def make_app(
    controller: Controller, guard: Guard, ring: KeyRing, polls: LongPolls | None = None
) -> FastAPI:
    """The application. `polls.close()` ends requests that wait, when the service is to close."""
    app = FastAPI(
        title="Resurgence",
        version=__version__,
        description=_DESCRIPTION,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
    )
    takes_key = [Security(HTTPBearer(auto_error=False, description="An API key."))]
    app.include_router(job_routes(controller, polls or LongPolls()), dependencies=takes_key)
    app.include_router(service_routes(controller), dependencies=takes_key)
    app.include_router(open_routes(Readiness(controller.require_writable)))
    # These two have answers of their own in FastAPI; all other errors end at the gate.
    app.add_exception_handler(HTTPException, _answer)
    app.add_exception_handler(RequestValidationError, _answer)
    app.add_middleware(Gate, guard=guard, ring=ring)
    return app


async def _answer(_request: Request, error: Exception) -> JSONResponse:
    return failure_of(error).response()
