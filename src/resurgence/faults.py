"""Fault points: the places where a drill or a test may strike, and what happens there.

`<point>@<epoch>=<action>`, several separated by commas. A fault fires once per state dir: it is
claimed by creating an object before it acts, so the process that comes back does not meet it again.
Points inside an epoch fire at exactly that epoch. Points of background work and of restore do not
happen in every epoch; they fire at the first chance at that epoch or later (`restore.mid`: when the
epoch that comes next is that one or later).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from resurgence.errors import ConfigError, InjectedFault, did_you_mean
from resurgence.storage.object_store import ObjectStore


class FaultPoint(StrEnum):
    """Where a fault can strike, in the order of an epoch's life."""

    EPOCH_PLANNED = "epoch.planned"
    EPOCH_READ = "epoch.read"
    STATE_PARTIAL = "state.partial"
    STATE_WRITTEN = "state.written"
    SINK_STAGED = "sink.staged"
    METADATA_WRITTEN = "metadata.written"
    MANIFEST_PUBLISHED = "manifest.published"
    SINK_COMMITTING = "sink.committing"
    SINK_COMMITTED = "sink.committed"
    COMPACTION_MID = "compaction.mid"
    RETENTION_MID = "retention.mid"
    RESTORE_MID = "restore.mid"


class FaultAction(StrEnum):
    """What a fault does."""

    KILL = "kill"
    RAISE = "raise"
    HANG = "hang"
    FREEZE = "freeze"


AT_OR_AFTER = frozenset(
    {FaultPoint.COMPACTION_MID, FaultPoint.RETENTION_MID, FaultPoint.RESTORE_MID}
)


@dataclass(frozen=True)
class Fault:
    """One fault to inject."""

    point: FaultPoint
    epoch: int
    action: FaultAction

    def __str__(self) -> str:
        return f"{self.point}@{self.epoch}={self.action}"

    def meets(self, point: FaultPoint, epoch: int) -> bool:
        """Whether this fault is due at that point of that epoch."""
        due = epoch >= self.epoch if point in AT_OR_AFTER else epoch == self.epoch
        return self.point == point and due


def parse_faults(text: str) -> tuple[Fault, ...]:
    """The faults of a setting."""
    return tuple(
        _parse_fault(part.strip()) for part in text.replace(";", ",").split(",") if part.strip()
    )


def _parse_fault(text: str) -> Fault:
    place, _, action = text.partition("=")
    point, _, epoch = place.partition("@")
    if not epoch.isdecimal():
        raise ConfigError(
            f"'{text}' is not a fault",
            hint="Write <point>@<epoch>=<action>, as in state.written@3=kill.",
        )
    if point not in set(FaultPoint):
        raise ConfigError(f"unknown fault point '{point}'", hint=did_you_mean(point, FaultPoint))
    if action not in set(FaultAction):
        raise ConfigError(
            f"unknown fault action '{action}'", hint=did_you_mean(action, FaultAction)
        )
    return Fault(FaultPoint(point), int(epoch), FaultAction(action))


class FaultInjector:
    """Strikes at fault points. Without faults it does nothing and costs nothing."""

    def __init__(self, faults: tuple[Fault, ...], store: ObjectStore, folder: str) -> None:
        self._faults = faults
        self._store = store
        self._folder = folder

    def claim(self, point: FaultPoint, epoch: int) -> FaultAction | None:
        """The action that is due here, claimed so that it never fires again; None when nothing
        is due.
        """
        for fault in self._faults:
            marker = f"{self._folder}/faults/{fault.point}-{fault.epoch}-{fault.action}"
            if fault.meets(point, epoch) and self._store.create(marker, str(fault).encode()):
                return fault.action
        return None

    def hit(self, point: FaultPoint, epoch: int) -> None:
        """Pass a fault point, or be struck there."""
        action = self.claim(point, epoch)
        if action is not None:
            strike(action, point, epoch, os.getpid())


def strike(action: FaultAction, point: FaultPoint, epoch: int, worker_pid: int) -> None:
    """Do it. From inside a Spark task, `worker_pid` is the driver's process."""
    if action is FaultAction.RAISE:
        raise InjectedFault(f"fault injected at {point}, epoch {epoch}")
    if action is FaultAction.HANG:
        stand_still(lambda: os.getppid() == 1)
    os.kill(worker_pid, signal.SIGKILL if action is FaultAction.KILL else signal.SIGSTOP)
    stand_still(lambda: action is FaultAction.FREEZE and os.getpid() == worker_pid)


def stand_still(until: Callable[[], bool]) -> None:
    """Do nothing, until a condition or, at the latest, an hour."""
    deadline = time.monotonic() + 3600
    while not until() and time.monotonic() < deadline:
        time.sleep(0.1)
