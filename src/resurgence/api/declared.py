"""Which errors a path may answer with, for the description of the API."""

from __future__ import annotations

from typing import Any

from resurgence.api.models import ErrorAnswer

PLAIN_TEXT = {"text/plain": {"schema": {"type": "string"}}}
Declared = dict[int | str, dict[str, Any]]


def _declared(texts: dict[int, str]) -> Declared:
    return {status: {"model": ErrorAnswer, "description": text} for status, text in texts.items()}


OPEN_ERRORS = _declared(
    {
        403: "Another host or origin than the service's own.",
        500: "An error of the service.",
    }
)
READY_ERRORS = OPEN_ERRORS | _declared({503: "Writes to the database fail: the message says why."})
READ_ERRORS = OPEN_ERRORS | _declared(
    {
        401: "An API key is needed.",
        403: "The key may not do this, or another host or origin than the service's own.",
        404: "There is no such job.",
        422: "The request is not valid.",
        429: "Too many requests without a valid key, or too many that wait for events.",
        503: "The database or the object store fails.",
    }
)
CHANGE_ERRORS = READ_ERRORS | _declared(
    {
        400: "The body cannot be read.",
        409: "It cannot be done to the job as it is: the message says why.",
        413: "The body is too large.",
        422: "The request is not valid, or its SQL is wrong.",
    }
)
