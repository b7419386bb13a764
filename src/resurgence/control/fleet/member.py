"""A controller as a member of its service: renews its lease, claims and releases jobs, notices the
loss of jobs and the requests that others stored.

One task renews the lease, so that nothing delays a renewal. Another one reconciles: once per beat,
and whenever the database notifies it, it reads all rows, and `assignment` decides. While the database
is away nothing is claimed, released or let go: jobs continue.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Protocol

from pydantic import JsonValue

from resurgence.control.background import in_thread
from resurgence.control.fleet.assignment import (
    RenewalStreak,
    assign,
    dead_peers,
    members,
    should_give_up,
)
from resurgence.control.fleet.storage_probe import StorageProbe
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
_SHARE = 0.2
"""The part of the time that is spent on reading all rows, if notifications arrive all the time."""
_RELISTEN = timedelta(seconds=1)
_SHORTEST_PATIENCE = timedelta(seconds=2)
"""The shortest wait for the answer to a renewal; else it is half a lease."""

log = logging.getLogger("resurgence.control")


class Host(Protocol):
    """The jobs of this controller."""

    def revisions(self) -> Mapping[JobName, int]:
        """Return the jobs that it runs, with the revisions that it knows."""

    async def take(self, record: JobRecord, *, orphaned: bool, nth: int) -> bool:
        """Run a job that was claimed. `orphaned`: its worker, if it has one, waits to be adopted.
        Return False if the job needs a new worker: it starts as the nth of a batch.
        """

    async def let_go(self, name: JobName) -> None:
        """Stop running a job that another controller owns."""

    async def hand_over(self, name: JobName) -> JobRecord | None:
        """Stop a job at a checkpoint, and store everything about it. Return its last record; None
        if it was not run here.
        """

    def apply(self, record: JobRecord) -> None:
        """Apply a request that another controller stored."""

    def progress(self) -> Mapping[JobName, dict[str, JsonValue]]:
        """Return the progress of its jobs."""


class FleetMember:
    """One controller among those that share a database."""

    def __init__(
        self,
        metadata: MetadataStore,
        owners: JobOwners,
        host: Host,
        process: Owner,
        url: str,
        ask_storage: Callable[[], object] = lambda: None,
    ) -> None:
        """`process` identifies this process, `url` is the address of its API. `ask_storage` reads
        from the storage of the service; it blocks, and raises if that fails.
        """
        self.id = _new_id()
        self.peers: Mapping[ControllerId, str] = {}
        """The addresses of all live controllers."""
        self._metadata = metadata
        self._owners = owners
        self._host = host
        self._process = process
        self._url = url
        self._beat = owners.lease / _BEATS_PER_LEASE
        self._patience = max(owners.lease / 2, _SHORTEST_PATIENCE)
        self._streak = RenewalStreak(owners.lease)
        self._storage = StorageProbe(ask_storage, self._beat)
        self._members: frozenset[ControllerId] = frozenset()
        self._members_since = time.monotonic()
        self._moving: dict[JobName, asyncio.Task[None]] = {}
        self._shown: dict[JobName, dict[str, JsonValue]] = {}
        self._show_at = 0.0
        self._leaving = False
        self._is_away = False
        """The last renewal failed."""
        self._reconciling = asyncio.Lock()
        self._poked = asyncio.Event()
        self._ended = threading.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.joined: Callable[[ControllerId], None] = lambda _id: None
        """Called with each new id of this controller, before it is used."""

    # ---------------------------------------------------------------- life

    async def open(self) -> None:
        """Join the service. Raise StorageError if the database is away."""
        await self._join()
        await self._reconcile()
        loops = (self._keep_lease, self._keep_jobs, self._watch_storage, self._listen)
        self._tasks = [asyncio.create_task(each()) for each in loops]

    async def close(self) -> None:
        """Release all jobs at a checkpoint, and leave. The lease is renewed until then."""
        async with self._reconciling:
            # One in progress may still claim jobs.
            self._leaving = True
        with contextlib.suppress(StorageError):
            # The others must not wait for this one to claim what it releases.
            await self._renew()
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

        While the database is away, only a controller without a lease loses a job, and only one that
        another has claimed. If it owns the job after all, it takes it up again when the database is
        back.
        """
        has_lease = owner == self.id and self._streak.is_current(time.monotonic())
        if is_undisputed and has_lease:
            return
        try:
            is_mine = self._owners.owns(owner, name)
        except StorageError as error:
            if is_undisputed or has_lease:
                return
            raise JobLost(f"job '{name}' was claimed by another controller") from error
        if not is_mine:
            raise JobLost(f"job '{name}' is owned by another controller")

    # ---------------------------------------------------------------- the loops

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(self._beat.total_seconds())
            try:
                await self._renew()
            except StorageError as error:
                if not self._is_away:
                    log.warning(
                        "cannot renew the lease of this controller; its jobs continue: %s",
                        error.message,
                    )
                self._is_away = True
            except Exception:
                log.exception("cannot renew the lease of this controller")
            else:
                if self._is_away:
                    log.warning("the metadata database answers again")
                self._is_away = False

    async def _renew(self) -> None:
        me, asked_at = self.id, time.monotonic()
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                is_member = await in_thread(
                    self._owners.renew,
                    me,
                    leaving=self._leaving,
                    reaches_storage=self._storage.is_reachable,
                )
        except TimeoutError as error:
            # A connection that the network has lost is given up later. The next renewal gets another.
            seconds = self._patience.total_seconds()
            raise StorageError(f"the metadata database did not answer in {seconds:g} s") from error
        if not is_member:
            self.poke()
        elif me == self.id:
            self._streak.renewed(asked_at)

    async def _watch_storage(self) -> None:
        while True:
            await self._storage.check()
            await asyncio.sleep(self._beat.total_seconds())

    async def _keep_jobs(self) -> None:
        took = 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._beat.total_seconds()):
                    await self._poked.wait()
                    await asyncio.sleep(max(_QUIET.total_seconds(), took / _SHARE - took))
            self._poked.clear()
            began = time.monotonic()
            try:
                await self._reconcile()
            except StorageError as error:
                if not self._is_away:
                    log.warning("cannot reconcile the jobs of this controller: %s", error.message)
            except Exception:
                log.exception("cannot reconcile the jobs of this controller")
            took = time.monotonic() - began

    async def _reconcile(self) -> None:
        async with self._reconciling:
            await self._reconcile_with(set(self._moving), await in_thread(self._owners.fleet))

    async def _reconcile_with(self, moving: Collection[JobName], fleet: Fleet) -> None:
        """Act on the rows. `moving` are the jobs that were being moved before they were read."""
        if all(each.id != self.id for each in fleet.peers):
            await self._lose_all()
            return
        self._note_members(fleet)
        owned = {each.name: each for each in fleet.jobs if each.owner == self.id}
        known = dict(self._host.revisions())
        await asyncio.gather(*(self._host.let_go(name) for name in known.keys() - owned.keys()))
        changed = [
            name
            for name, revision in known.items()
            if name in owned and owned[name].revision > revision
        ]
        for record in await in_thread(self._metadata.jobs, changed) if changed else ():
            self._host.apply(record)
        # A claim or a release of which the answer was lost, or a job that was given up while the
        # database was away. What was being moved may be released by now.
        missing = [each for each in owned if each not in known and each not in moving]
        unreachable_for = self._storage.unreachable_for(time.monotonic())
        if self._leaving:
            for name in missing:
                await in_thread(self._owners.release, self.id, name)
        elif should_give_up(self.id, fleet.peers, unreachable_for, self._owners.lease):
            await self._give_up()
        else:
            await self._take(dict.fromkeys(missing, False))
            await self._declare_dead(fleet)
            await self._balance(fleet)
        await self._show_progress()

    async def _give_up(self) -> None:
        """Release all jobs at once: without storage no checkpoint is possible."""
        names = list(self._host.revisions())
        if names:
            log.warning("the storage cannot be reached from here; releasing %d jobs", len(names))
            await asyncio.gather(*(self._host.let_go(name) for name in names))
        await in_thread(self._owners.release_all, self.id)

    async def _lose_all(self) -> None:
        """Let go of all jobs, because this controller was declared dead; then join again."""
        log.warning("this controller lost its lease; others take over its jobs")
        await asyncio.gather(*(self._host.let_go(name) for name in self._host.revisions()))
        self.id = _new_id()
        self._streak = RenewalStreak(self._owners.lease)
        await self._join()
        self.poke()

    async def _join(self) -> None:
        # First: the answer of a successful join may be lost.
        self.joined(self.id)
        asked_at = time.monotonic()
        await in_thread(self._owners.join, self.id, self._process, self._url)
        self._streak.renewed(asked_at)

    def _note_members(self, fleet: Fleet) -> None:
        self.peers = {each.id: each.url for each in fleet.peers if not each.is_expired}
        found = members(fleet.peers)
        if found != self._members:
            self._members, self._members_since = found, time.monotonic()

    async def _declare_dead(self, fleet: Fleet) -> None:
        may_expire = self._streak.covers_a_lease(time.monotonic())
        dead = dead_peers(self.id, fleet.peers, is_running, may_expire=may_expire)
        for each in dead:
            what = "process" if each.is_proven else "lease"
            log.warning("taking over from controller %s, because its %s has ended", each.id, what)
        if dead:
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
        started = 0
        for record in await in_thread(self._metadata.jobs, tuple(orphaned), self.id):
            has_worker = await self._host.take(record, orphaned=orphaned[record.name], nth=started)
            started += not has_worker

    async def _move(self, name: JobName) -> None:
        """Stop a job at a checkpoint and release it."""
        owner = self.id
        record = await self._host.hand_over(name)
        try:
            await in_thread(self._owners.release, owner, name)
        except StorageError as error:
            log.warning("cannot release job %s: %s", name, error.message)
            if record is not None and not self._leaving and owner == self.id:
                # No one can claim it while the database is away.
                await self._host.take(record, orphaned=False, nth=0)

    async def _show_progress(self) -> None:
        """Store the progress of all jobs, once per beat, however many requests arrive."""
        if time.monotonic() < self._show_at:
            return
        self._show_at = time.monotonic() + self._beat.total_seconds() * 0.9
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
