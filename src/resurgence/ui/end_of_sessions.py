"""Closes the pages of sessions that have ended: logged out, expired, or of a removed key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from nicegui.client import Client

from resurgence.errors import ResurgenceError
from resurgence.ui.access.console_gate import VISITOR
from resurgence.ui.access.visitor import SessionEnded, Visitor
from resurgence.ui.console import Console

_INTERVAL = 2.0
_RELOAD_WITHIN = 0.2
"""Until pages have received the message."""
_LOG = logging.getLogger(__name__)


@asynccontextmanager
async def end_sessions(console: Console) -> AsyncIterator[None]:
    """Watch the sessions of open pages while the context is open."""
    watch = asyncio.create_task(_watch(console))
    try:
        yield
    finally:
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch


async def _watch(console: Console) -> None:
    while True:
        await asyncio.sleep(_INTERVAL)
        try:
            await close_ended(console)
        except ResurgenceError as error:
            _LOG.warning("cannot verify the sessions of the console: %s", error.message)
        except Exception:
            # Without this watch, pages would stay open after a logout until they are reloaded.
            _LOG.exception("cannot close the pages of ended sessions; this is tried again")


async def close_ended(console: Console) -> None:
    """Close the pages whose visitor may no longer see them, or may do something else now."""
    known: dict[Visitor, bool] = {}
    ended = []
    for client in [*Client.instances.values()]:
        visitor = client.request.scope.get(VISITOR) if client._request is not None else None
        if not isinstance(visitor, Visitor):
            continue
        if visitor not in known:
            known[visitor] = await _stands(console, visitor)
        if not known[visitor]:
            ended.append(client)
    if not ended:
        return
    for client in ended:
        # The page asks again who it is for, and is sent to the login if to nobody.
        client.run_javascript("location.reload()")
    await asyncio.sleep(_RELOAD_WITHIN)
    for client in ended:
        # Its user may have closed it meanwhile.
        if client.id in Client.instances:
            client.delete()


async def _stands(console: Console, visitor: Visitor) -> bool:
    try:
        return await console.doorkeeper.again(visitor) == visitor
    except SessionEnded:
        return False
