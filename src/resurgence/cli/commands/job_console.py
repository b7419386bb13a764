"""The web console of `resurgence run --ui`: for this machine, while the job runs."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from resurgence.api.access.guard import Guard
from resurgence.cli.commands.serve import DEFAULT_PORT, serve_until
from resurgence.control.controller import Controller
from resurgence.control.embedded import Beside
from resurgence.control.one_job import OneJob

_HOST = "127.0.0.1"


def console_beside(announce: Callable[[str], None]) -> Beside:
    """Return a context that serves the console of a job, on the port of services if it is free."""

    @asynccontextmanager
    async def beside(job: OneJob) -> AsyncIterator[None]:
        @asynccontextmanager
        async def build() -> AsyncIterator[Controller]:
            yield job

        closing = asyncio.Event()
        # Without keys there are no sessions to sign.
        secret = secrets.token_bytes(32)
        with _listening() as listener:
            serving = asyncio.create_task(
                serve_until(closing, listener, Guard(), build, list, announce, secret)
            )
            try:
                yield
            finally:
                closing.set()
                await serving

    return beside


def _listening() -> socket.socket:
    try:
        return socket.create_server((_HOST, DEFAULT_PORT))
    except OSError:
        return socket.create_server((_HOST, 0))
