"""Which controller should own which job; pure.

Every controller evaluates the same functions over the same rows, so that their decisions agree
without a leader: an unowned job is claimed by the one controller that they assign it to. If two of
them see different rows, the database lets one of the claims succeed.

A running job is moved only if that makes the load more even, a few jobs at a time, and only once
the set of controllers has been the same for a while. A move costs a checkpoint and a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from resurgence.ids import ControllerId, JobName
from resurgence.state.records import Owner

MAX_MOVES = 4
"""Jobs that one controller releases at the same time."""
PATIENCE_WITH_STORAGE = 0.6
"""The part of a lease for which a controller waits for the storage to return."""


@dataclass(frozen=True)
class Peer:
    """A controller as the database has it."""

    id: ControllerId
    process: Owner
    url: str = ""
    is_expired: bool = False
    """Its lease has ended by the clock of the database."""
    is_fresh: bool = True
    """It renewed its lease lately, so that it will claim what is assigned to it."""
    is_leaving: bool = False
    """It is shutting down and releases its jobs."""
    reaches_storage: bool = True
    """The storage of the service answered it lately."""


@dataclass(frozen=True)
class JobFact:
    """A job as far as it matters here."""

    name: JobName
    owner: ControllerId | None = None
    is_active: bool = True
    """It has, or needs, a supervisor."""
    is_running: bool = True
    """It can be moved without a replay: its worker runs epochs."""
    revision: int = 0


@dataclass(frozen=True)
class Assignment:
    """What one controller should do now."""

    claims: tuple[JobName, ...] = ()
    releases: tuple[JobName, ...] = ()


@dataclass(frozen=True)
class Dead:
    """A controller that lost its jobs."""

    id: ControllerId
    is_proven: bool
    """Its process has ended, so that nothing holds the connections of its workers."""


def dead_peers(
    me: ControllerId,
    peers: Sequence[Peer],
    runs: Callable[[Owner], bool | None],
    *,
    may_expire: bool,
) -> tuple[Dead, ...]:
    """Return the controllers whose jobs may be taken over.

    `runs` returns whether a process runs, or None if it is not visible from here. `may_expire`:
    see `RenewalStreak`.
    """
    dead = []
    for peer in peers:
        if peer.id == me:
            continue
        if runs(peer.process) is False:
            dead.append(Dead(peer.id, is_proven=True))
        elif peer.is_expired and may_expire:
            dead.append(Dead(peer.id, is_proven=False))
    return tuple(dead)


def should_give_up(
    me: ControllerId, peers: Sequence[Peer], unreachable_for: timedelta, lease: timedelta
) -> bool:
    """Return whether a controller should release all its jobs, because it cannot reach the storage
    and another controller can. It waits for the most part of a lease: if the storage is away for
    all, the others have noticed by then, and nothing moves.
    """
    return unreachable_for >= lease * PATIENCE_WITH_STORAGE and any(
        each.id != me and each.is_fresh and not each.is_leaving and each.reaches_storage
        for each in peers
    )


class RenewalStreak:
    """How long a controller has renewed its lease without a gap.

    All leases end while the database is away. When it is back, live controllers must renew before
    anyone judges them. So only a controller that has itself renewed for a whole lease without a gap
    may declare others dead: in that time they could have renewed, too.
    """

    def __init__(self, lease: timedelta) -> None:
        self._lease = lease.total_seconds()
        self._began = self._last = float("-inf")

    def renewed(self, now: float) -> None:
        """Note a renewal. `now` is monotonic time in seconds."""
        if self._has_gap(now):
            self._began = now
        self._last = now

    def is_current(self, now: float) -> bool:
        """Return whether the last renewal still holds, by this process's own clock."""
        return now - self._last < self._lease

    def covers_a_lease(self, now: float) -> bool:
        """Return whether others may be declared dead."""
        return not self._has_gap(now) and self._last - self._began >= self._lease

    def _has_gap(self, now: float) -> bool:
        return now - self._last > self._lease / 2


def members(peers: Sequence[Peer]) -> frozenset[ControllerId]:
    """Return the controllers that jobs are assigned to: those that can reach the storage, unless
    none can.
    """
    alive = [each for each in peers if not each.is_expired and not each.is_leaving]
    able = [each for each in alive if each.reaches_storage]
    return frozenset(each.id for each in able or alive)


def assign(
    me: ControllerId,
    peers: Sequence[Peer],
    jobs: Sequence[JobFact],
    *,
    moving: Collection[JobName] = (),
    is_settled: bool = True,
) -> Assignment:
    """Return what to claim and what to release. `moving` are the jobs that are being released
    already; `is_settled`: the set of controllers has not changed for a while.
    """
    alive = members(peers)
    taking = sorted(each.id for each in peers if each.id in alive and each.is_fresh)
    active = dict.fromkeys(alive, 0)
    total = dict.fromkeys(alive, 0)
    for job in jobs:
        if job.owner in active:
            active[job.owner] += job.is_active
            total[job.owner] += 1
    claims = []
    for job in sorted(jobs, key=lambda each: (not each.is_active, each.name)):
        if job.owner is not None or not taking:
            continue
        first, second = (active, total) if job.is_active else (total, active)
        chosen = min(taking, key=lambda each: (first[each], second[each], each))
        active[chosen] += job.is_active
        total[chosen] += 1
        if chosen == me:
            claims.append(job.name)
    releases: list[JobName] = []
    if is_settled and me in active:
        count = min(_excess(me, active) - len(moving), MAX_MOVES - len(moving))
        movable = [
            each.name
            for each in jobs
            if each.owner == me and each.is_running and each.name not in moving
        ]
        releases = sorted(movable)[: max(0, count)]
    return Assignment(tuple(claims), tuple(releases))


def _excess(me: ControllerId, active: dict[ControllerId, int]) -> int:
    """Return how many active jobs a controller has above its even share; 0 if all loads differ by
    at most one.
    """
    if max(active.values()) - min(active.values()) <= 1:
        return 0
    share, remainder = divmod(sum(active.values()), len(active))
    most_first = sorted(active, key=lambda each: (-active[each], each))
    return active[me] - share - (most_first.index(me) < remainder)
