"""A controller as a member of its service: renews its lease, claims and releases jobs, notices the
loss of jobs and the requests that others stored.

One task does all of it, once per beat and whenever the database notifies it; `assignment` decides.
While the database is away nothing is claimed, released or let go: jobs continue.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Protocol

from pydantic import JsonValue

from resurgence.control.background import in_thread
from resurgence.control.fleet.assignment import RenewalStreak, assign, dead_peers
from resurgence.control.jobs.job_record import JobRecord
from resurgence.control.store.job_owners import Fleet, JobOwners
from resurgence.control.store.metadata import MetadataStore
from resurgence.errors import JobLost, StorageError
from resurgence.ids import ControllerId, JobName
from resurgence.state.protocol.ownership import is_running
from resurgence.state.records import Owner

_BEATS_PER_LEASE = 5
_QUIET = timedelta(milliseconds=50)
"""Notifications within this time are handled together."""
_RELISTEN = timedelta(seconds=1)

log = logging.getLogger("resurgence.control")


class Host(Protocol):
    """The jobs of this controller."""

    def revisions(self) -> Mapping[JobName, int]:
        """Return the jobs that it runs, with the revisions that it knows."""

    async def take(self, record: JobRecord, *, orphaned: bool, nth: int) -> None:
        """Run a job that was claimed, as the nth of a batch. `orphaned`: its worker, if it has
        one, waits to be adopted.
        """

    async def let_go(self, name: JobName) -> None:
        """Stop running a job that another controller owns."""

    async def hand_over(self, name: JobName) -> None:
        """Stop a job at a checkpoint, and store everything about it."""

    def apply(self, record: JobRecord) -> None:
        """Apply a request that another controller stored."""

    def progress(self) -> Mapping[JobName, dict[str, JsonValue]]:
        """Return the progress of its jobs."""


class FleetMember:
    """One controller among those that share a database."""

    def __init__(
        self, metadata: MetadataStore, owners: JobOwners, host: Host, process: Owner, url: str
    ) -> None:
        """`process` identifies this process, `url` is the address of its API."""
        self.id = _new_id()
        self.peers: Mapping[ControllerId, str] = {}
        """The addresses of all controllers."""
        self._metadata = metadata
        self._owners = owners
        self._host = host
        self._process = process
        self._url = url
        self._beat = owners.lease / _BEATS_PER_LEASE
        self._streak = RenewalStreak(owners.lease)
        self._members: frozenset[ControllerId] = frozenset()
        self._members_since = time.monotonic()
        self._moving: dict[JobName, asyncio.Task[None]] = {}
        self._shown: dict[JobName, dict[str, JsonValue]] = {}
        self._leaving = False
        self._stepping = asyncio.Lock()
        self._poked = asyncio.Event()
        self._ended = threading.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.joined: Callable[[ControllerId], None] = lambda _id: None
        """Called with each new id of this controller."""

    # ---------------------------------------------------------------- life

    async def open(self) -> None:
        """Join the service. Raise StorageError if the database is away."""
        await self._join()
        await self._step()
        self._tasks = [
            asyncio.create_task(self._run()),
            asyncio.create_task(self._listen()),
        ]

    async def close(self) -> None:
        """Release all jobs at a checkpoint, and leave. The lease is renewed until then."""
        async with self._stepping:
            # A step in progress may still claim jobs.
            self._leaving = True
        self.poke()
        await asyncio.gather(
            *self._moving.values(), *(self._move(name) for name in self._host.revisions())
        )
        self._ended.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(StorageError):
            await in_thread(self._owners.leave, self.id)

    def poke(self) -> None:
        """Look at the database now."""
        self._poked.set()

    def require_owned(self, name: JobName, owner: ControllerId, is_undisputed: bool) -> None:
        """Raise JobLost if this controller does not own the job under this id. Blocks. The database
        is asked if another controller has claimed a generation of the job, or may have, because this
        one could not renew its lease in time.
        """
        if is_undisputed and owner == self.id and self._streak.is_current(time.monotonic()):
            return
        try:
            is_mine = self._owners.owns(owner, name)
        except StorageError:
            if is_undisputed:
                return
            raise
        if not is_mine:
            raise JobLost(f"job '{name}' is owned by another controller")

    # ---------------------------------------------------------------- the loop

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._beat.total_seconds()):
                    await self._poked.wait()
                    await asyncio.sleep(_QUIET.total_seconds())
            self._poked.clear()
            try:
                await self._step()
            except StorageError as error:
                log.warning("cannot renew the lease of this controller: %s", error.message)
            except Exception:
                log.exception("cannot reconcile the jobs of this controller")

    async def _step(self) -> None:
        async with self._stepping:
            await self._reconcile()

    async def _reconcile(self) -> None:
        asked_at, moving = time.monotonic(), set(self._moving)
        fleet = await in_thread(self._owners.renew, self.id, leaving=self._leaving)
        if fleet is None:
            await self._lose_all()
            return
        self._streak.renewed(asked_at)
        self._note_members(fleet)
        owned = {each.name: each for each in fleet.jobs if each.owner == self.id}
        known = dict(self._host.revisions())
        for name in known.keys() - owned.keys():
            await self._host.let_go(name)
        # A claim or a release of which the answer was lost. What was being moved when the rows were
        # read may be released by now.
        missing = [each for each in owned if each not in known and each not in moving]
        if self._leaving:
            for name in missing:
                await in_thread(self._owners.release, self.id, name)
        else:
            await self._take(dict.fromkeys(missing, False))
            await self._bury(fleet)
            await self._balance(fleet)
        for name, revision in known.items():
            if name in owned and owned[name].revision > revision:
                record = await in_thread(self._metadata.job, name)
                if record is not None:
                    self._host.apply(record)
        await self._show_progress()

    async def _lose_all(self) -> None:
        """Let go of all jobs, because this controller was declared dead; then join again."""
        log.warning("this controller lost its lease; others have taken over its jobs")
        await asyncio.gather(*(self._host.let_go(name) for name in self._host.revisions()))
        self.id = _new_id()
        self._streak = RenewalStreak(self._owners.lease)
        await self._join()
        self.poke()

    async def _join(self) -> None:
        await in_thread(self._owners.join, self.id, self._process, self._url)
        self.joined(self.id)

    def _note_members(self, fleet: Fleet) -> None:
        self.peers = {each.id: each.url for each in fleet.peers}
        members = frozenset(
            each.id for each in fleet.peers if not each.is_expired and not each.is_leaving
        )
        if members != self._members:
            self._members, self._members_since = members, time.monotonic()

    async def _bury(self, fleet: Fleet) -> None:
        may_expire = self._streak.covers_a_lease
        dead = dead_peers(self.id, fleet.peers, is_running, may_expire=may_expire)
        if dead:
            log.warning("%d controllers have ended; taking over their jobs", len(dead))
            await in_thread(self._owners.declare_dead, dead)
            self.poke()

    async def _balance(self, fleet: Fleet) -> None:
        settled_for = time.monotonic() - self._members_since
        plan = assign(
            self.id,
            fleet.peers,
            fleet.jobs,
            moving=self._moving.keys(),
            is_settled=settled_for >= self._owners.lease.total_seconds(),
        )
        if plan.claims:
            await self._take(await in_thread(self._owners.claim, self.id, plan.claims))
        for name in plan.releases:
            self._moving[name] = asyncio.create_task(self._move(name))
            self._moving[name].add_done_callback(functools.partial(self._moved, name))

    def _moved(self, name: JobName, _task: asyncio.Task[None]) -> None:
        del self._moving[name]

    async def _take(self, orphaned: Mapping[JobName, bool]) -> None:
        """Run jobs that this controller owns."""
        if not orphaned:
            return
        delayed = 0
        for record in await in_thread(self._metadata.jobs, tuple(orphaned)):
            await self._host.take(record, orphaned=orphaned[record.name], nth=delayed)
            delayed += not orphaned[record.name]

    async def _move(self, name: JobName) -> None:
        """Stop a job at a checkpoint and release it."""
        owner = self.id
        await self._host.hand_over(name)
        try:
            await in_thread(self._owners.release, owner, name)
        except StorageError as error:
            # The database is away: the job is still ours.
            log.warning("cannot release job %s: %s", name, error.message)

    async def _show_progress(self) -> None:
        found = self._host.progress()
        shown = {name: _without_ages(facts) for name, facts in found.items()}
        changed = {name: found[name] for name in found if self._shown.get(name) != shown[name]}
        if changed:
            await in_thread(self._owners.put_progress, self.id, changed)
        self._shown = shown

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()

        def changed() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self.poke)

        while True:
            # The beat finds what is missed meanwhile.
            with contextlib.suppress(StorageError):
                await in_thread(self._metadata.listen, changed, self._ended)
            await asyncio.sleep(_RELISTEN.total_seconds())


def _without_ages(progress: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return progress without what changes by itself."""
    return {**progress, "watermark_lag_seconds": None, "last_checkpoint": None}


def _new_id() -> ControllerId:
    return ControllerId(f"controller-{uuid.uuid4().hex[:12]}")
