"""Error responses, all of one shape: `{"error": {"code", "message", "hint", "domain", ...}}`.

One table maps our errors to statuses. No response contains a stack trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from resurgence.api.models import ErrorAnswer, ErrorDetail
from resurgence.errors import ErrorDomain, ResurgenceError, SqlError, UserError

STATUS_OF_CODE = {
    "job.unknown": 404,
    "job.exists": 409,
    "job.being_deleted": 409,
    "state.incompatible": 409,
    "rollback.refused": 409,
    "sink.path_taken": 409,
}
"""Codes of user errors whose status is not 422."""

RETRY_AFTER_SECONDS = 2
"""For failures of the database or the object store, which may be temporary."""

_HTTP_CODES = {404: "http.not_found", 405: "http.method"}


class Refusal(Exception):
    """A refused request, with the status and the error of its response."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.detail = ErrorDetail(code=code, message=message, hint=hint, domain=ErrorDomain.USER)
        self.headers = dict(headers or {})


@dataclass(frozen=True)
class HttpFailure:
    """An error response before it is sent."""

    status: int
    detail: ErrorDetail
    headers: dict[str, str] = field(default_factory=dict)

    def response(self) -> JSONResponse:
        body = ErrorAnswer(error=self.detail).model_dump(mode="json", exclude_none=True)
        return JSONResponse(body, self.status, self.headers)


def failure_of(error: Exception) -> HttpFailure:
    """Return the response to an error. The text of an unforeseen error is not included."""
    match error:
        case Refusal():
            return HttpFailure(error.status, error.detail, error.headers)
        case ResurgenceError():
            return _own(error)
        case RequestValidationError():
            return HttpFailure(422, _invalid(error))
        case HTTPException():
            detail = ErrorDetail(
                code=_HTTP_CODES.get(error.status_code, "http"),
                message=str(error.detail),
                domain=ErrorDomain.USER,
            )
            return HttpFailure(error.status_code, detail, dict(error.headers or {}))
    return HttpFailure(
        500,
        ErrorDetail(
            code="internal",
            message="internal error of the service",
            hint="See the log of the service.",
            domain=ErrorDomain.INTERNAL,
        ),
    )


def _own(error: ResurgenceError) -> HttpFailure:
    place = (error.line, error.column) if isinstance(error, SqlError) else (None, None)
    detail = ErrorDetail(
        code=error.code,
        message=error.message,
        hint=error.hint,
        domain=error.domain,
        line=place[0],
        column=place[1],
    )
    if isinstance(error, UserError) or error.domain is ErrorDomain.USER:
        return HttpFailure(STATUS_OF_CODE.get(error.code, 422), detail)
    if error.domain is ErrorDomain.EXTERNAL:
        return HttpFailure(503, detail, {"Retry-After": str(RETRY_AFTER_SECONDS)})
    return HttpFailure(500, detail)


def _invalid(error: RequestValidationError) -> ErrorDetail:
    """Return the first validation error, without the value, because it may be secret."""
    first = error.errors()[0]
    place, *rest = first["loc"] or ("request",)
    where = ".".join(str(part) for part in rest if not isinstance(part, int)) or str(place)
    return ErrorDetail(
        code="request.invalid",
        message=f"{place}: {where}: {first['msg']}"
        if where != place
        else f"{place}: {first['msg']}",
        hint="See /docs for the fields of this request.",
        domain=ErrorDomain.USER,
    )
