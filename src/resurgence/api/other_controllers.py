"""Requests to the other controllers of a service, for what only they know: their workers, and the logs
on their machines. A request is forwarded once, with the key of its client, which all controllers
accept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import httpx
from fastapi import Request, Response
from pydantic import ValidationError

from resurgence.api.models import WorkerDetail, Workers
from resurgence.errors import ControllerUnreachable

FORWARDED = "X-Resurgence-Forwarded"
_CONNECT = timedelta(seconds=2)
_ANSWER = timedelta(seconds=10)


def is_forwarded(request: Request) -> bool:
    """Return whether another controller sent this request: it must be answered here."""
    return FORWARDED in request.headers


async def forward(request: Request, controller: str, headers: Sequence[str]) -> Response:
    """Return the response of another controller to a GET request, with these of its headers. Raise
    ControllerUnreachable if there is none.
    """
    query = f"?{request.url.query}" if request.url.query else ""
    answer = await _get(request, f"{controller}{request.url.path}{query}", controller)
    return Response(
        answer.content,
        answer.status_code,
        {name: answer.headers[name] for name in headers if name in answer.headers},
        answer.headers.get("content-type"),
    )


async def workers_elsewhere(
    request: Request, controllers: Sequence[str]
) -> tuple[list[WorkerDetail], list[str]]:
    """Return the workers of other controllers, and the addresses of those that do not answer."""

    async def ask(controller: str) -> list[WorkerDetail] | None:
        try:
            answer = await _get(request, f"{controller}/v1/workers", controller)
            answer.raise_for_status()
            return Workers.model_validate_json(answer.content).workers
        except (ControllerUnreachable, httpx.HTTPStatusError, ValidationError):
            return None

    answers = await asyncio.gather(*(ask(each) for each in controllers))
    found = [worker for each in answers if each is not None for worker in each]
    return found, [url for url, each in zip(controllers, answers, strict=True) if each is None]


async def _get(request: Request, url: str, controller: str) -> httpx.Response:
    headers = {FORWARDED: "1"}
    if (key := request.headers.get("Authorization")) is not None:
        headers["Authorization"] = key
    timeout = httpx.Timeout(_ANSWER.total_seconds(), connect=_CONNECT.total_seconds())
    try:
        # The controllers of a service reach each other without a proxy.
        async with httpx.AsyncClient(timeout=timeout, trust_env=False) as client:
            return await client.get(url, headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ControllerUnreachable(
            f"the controller at {controller}, which has the answer, does not respond",
            hint="Try again: if it has ended, another one takes over its jobs. If it runs, check "
            "that the controllers reach each other at controller.url.",
        ) from error
