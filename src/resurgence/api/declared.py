"""The error responses of each path, for the OpenAPI description."""

from __future__ import annotations

from typing import Any

from resurgence.api.models import ErrorAnswer

PLAIN_TEXT = {"text/plain": {"schema": {"type": "string"}}}
Declared = dict[int | str, dict[str, Any]]


def _declared(texts: dict[int, str]) -> Declared:
    return {status: {"model": ErrorAnswer, "description": text} for status, text in texts.items()}


OPEN_ERRORS = _declared(
    {
        403: "The Host or Origin header is not the service's own.",
        500: "Internal error of the service.",
    }
)
READY_ERRORS = OPEN_ERRORS | _declared(
    {503: "Writes to the database fail. The message gives the reason."}
)
READ_ERRORS = OPEN_ERRORS | _declared(
    {
        401: "An API key is required.",
        403: "The key may only read, or the Host or Origin header is not the service's own.",
        404: "The job does not exist.",
        422: "The request is invalid.",
        429: "Too many requests without a valid key, or too many waiting for events.",
        503: "The database or the object store fails.",
    }
)
CHANGE_ERRORS = READ_ERRORS | _declared(
    {
        400: "The body cannot be parsed.",
        409: "The request conflicts with the state of a job. The message gives the reason.",
        413: "The body is too large.",
        422: "The request or its SQL is invalid.",
    }
)
