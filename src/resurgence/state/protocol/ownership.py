"""Which process runs a job: the lease beside its newest generation.

The fence protects a job's state from concurrent writers. The lease is for people: it names the live
owner, so that a running job is never fenced out by accident. The process that claims a generation
writes its lease; the controller renews the lease while it supervises the job, and deletes it when
the job ends. So a generation without a lease is free. The lease of an owner that died remains:

* On this host (same boot, same process namespace) the owner's process is looked up by pid and start
  time. If the process has ended, the job is free at once.
* On another host only the renewals are visible. A lease that is not renewed for `LEASE` is free.
  One that looks fresh is watched until it is renewed, which proves that its owner is alive, or
  until `LEASE` has passed.

The owner of a service's jobs is the service, not the process: which of its controllers has a job is
decided in the metadata database, so that one takes over from another without waiting here. The
lease names the controller's address, by which a worker finds the controller that adopts it.

`judge` decides and is pure; `Leases` reads and writes.
"""

from __future__ import annotations

import functools
import os
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from resurgence.clock import instant_text
from resurgence.errors import JobHeld
from resurgence.ids import NO_GENERATION, Generation, JobIdentity
from resurgence.state.paths import JobPaths, lease_generation
from resurgence.state.records import UNUSABLE, LeaseRecord, Owner, OwnerKind, decode
from resurgence.storage.object_store import ObjectStore

LEASE = timedelta(seconds=30)
"""An owner on another host that has not renewed its lease for this long is dead."""
RENEW_EVERY = timedelta(seconds=10)

_HINTS: Mapping[OwnerKind, str] = {
    OwnerKind.RUN: "Stop it there, or pass --take-over to fence it out and run the job here.",
    OwnerKind.SERVICE: "Stop it there, then start this job again.",
    OwnerKind.ROLLBACK: "Stop it there, then roll back; or run `rollback NAME` on its service.",
}
"""Hints by the kind of the requesting process."""


# ---------------------------------------------------------------- the decision


@dataclass(frozen=True)
class Sighting:
    """An earlier observation of a lease."""

    renewed_at: datetime
    seen_at: datetime


@dataclass(frozen=True)
class Free:
    """No process runs the job."""


@dataclass(frozen=True)
class HeldBy:
    """Another process runs the job. `proven`: it is known to be alive; otherwise it is only not
    known to be dead.
    """

    lease: LeaseRecord
    proven: bool


def judge(
    lease: LeaseRecord | None,
    asking: str,
    now: datetime,
    *,
    process_runs: bool | None,
    before: Sighting | None = None,
) -> Free | HeldBy:
    """Decide whether the owner with the id `asking` may claim a job.

    `process_runs` is None for an owner whose process is not visible from here; then `before` is the
    first observation of the lease.
    """
    if lease is None or lease.owner.id == asking:
        return Free()
    if process_runs is not None:
        return HeldBy(lease, proven=True) if process_runs else Free()
    if now - lease.renewed_at >= LEASE:
        return Free()
    if before is None:
        return HeldBy(lease, proven=False)
    if before.renewed_at != lease.renewed_at:
        return HeldBy(lease, proven=True)
    # The clocks of two hosts may differ, so only the clock of this host times the watch.
    return Free() if now - before.seen_at >= LEASE else HeldBy(lease, proven=False)


# ---------------------------------------------------------------- leases in storage


class Leases:
    """The leases of one job."""

    def __init__(self, store: ObjectStore, paths: JobPaths) -> None:
        self._store = store
        self._paths = paths

    def renew(self, job: JobIdentity, generation: Generation, owner: Owner, now: datetime) -> None:
        """Record that the owner is alive and holds the generation."""
        record = LeaseRecord(job=job, generation=generation, owner=owner, renewed_at=now)
        self._store.replace(self._paths.lease(generation), record.encode())

    def release(self, generation: Generation) -> None:
        """Record that no process holds the generation."""
        self._store.delete([self._paths.lease(generation)])

    def drop_older(self, generation: Generation) -> None:
        """Remove the leases of generations that are fenced out."""
        found = (each.path for each in self._store.list(self._paths.leases))
        older = [path for path in found if (lease_generation(path) or generation) < generation]
        self._store.delete(older)

    def require_free(
        self,
        generation: Generation,
        asking: Owner,
        now: datetime,
        before: Sighting | None = None,
    ) -> None:
        """Raise JobHeld if a live process other than `asking` holds the generation."""
        lease = self._read(generation)
        runs = is_running(lease.owner) if lease is not None else None
        found = judge(lease, asking.id, now, process_runs=runs, before=before)
        if isinstance(found, HeldBy):
            owner = found.lease.owner
            raise JobHeld(
                f"job '{self._paths.job}' has been run by {owner.description} "
                f"since {instant_text(owner.since)}",
                hint=_HINTS[asking.kind],
                renewed_at=found.lease.renewed_at,
                proven=found.proven,
            )

    def control_address(self, generation: Generation) -> tuple[str, int] | None:
        """Return where the owner of the generation listens for workers, if that is on record."""
        lease = self._read(generation)
        if lease is None or lease.owner.control is None:
            return None
        host, _, port = lease.owner.control.rpartition(":")
        return host, int(port)

    def _read(self, generation: Generation) -> LeaseRecord | None:
        if generation == NO_GENERATION:
            return None
        path = self._paths.lease(generation)
        try:
            return decode(LeaseRecord, self._store.read(path), path)
        except UNUSABLE:
            return None


# ---------------------------------------------------------------- processes


def owner_here(
    kind: OwnerKind, identity: str, since: datetime, control: tuple[str, int] | None = None
) -> Owner:
    """Describe this process as an owner. `control` is where it listens for workers."""
    pid = os.getpid()
    return Owner(
        id=identity,
        kind=kind,
        host=socket.gethostname(),
        pid=pid,
        since=since,
        process_space=_process_space(),
        process_started=_process_started(pid) or "",
        control=f"{control[0]}:{control[1]}" if control else None,
    )


def is_running(owner: Owner) -> bool | None:
    """Return whether the owner's process runs; None if it is not visible from here."""
    if owner.process_space != _process_space():
        return None
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    started = _process_started(owner.pid)
    return started is None or started == owner.process_started


@functools.cache
def _process_space() -> str:
    """Return the scope in which a pid is unique: this boot, and this container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def _process_started(pid: int) -> str | None:
    """Return the start time of a process in a system-specific form; None if it is unknown, "" for a
    dead process that is not yet reaped.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return "" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        pass
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
