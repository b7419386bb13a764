"""Fault injection for drills and tests: fault points and actions.

A fault is written `<point>@<epoch>=<action>`; several are separated by commas. `sink.between` is
passed after the commit of each sink but the last; `sink.between:<n>` is its n-th time in an epoch.
A fault fires once per state dir: it is claimed by creating an object before it acts, so that it does
not fire again in the restarted process. Points inside an epoch fire at exactly that epoch. Points of
background work and of restore are not reached in every epoch, so they fire the first time they are
reached at that epoch or later (for `restore.mid`, the next epoch to run counts).
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
    """Where a fault can be injected, in the order of an epoch's phases."""

    EPOCH_PLANNED = "epoch.planned"
    EPOCH_READ = "epoch.read"
    STATE_PARTIAL = "state.partial"
    STATE_WRITTEN = "state.written"
    SINK_STAGED = "sink.staged"
    METADATA_WRITTEN = "metadata.written"
    MANIFEST_PUBLISHED = "manifest.published"
    SINK_COMMITTING = "sink.committing"
    SINK_BETWEEN = "sink.between"
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
_MARKED = str.maketrans("@=:", "---")


@dataclass(frozen=True)
class Fault:
    """One fault to inject."""

    point: FaultPoint
    epoch: int
    action: FaultAction
    passage: int = 1
    """Of a point that an epoch passes more than once: which time."""

    def __str__(self) -> str:
        numbered = self.point if self.passage == 1 else f"{self.point}:{self.passage}"
        return f"{numbered}@{self.epoch}={self.action}"

    @property
    def marker(self) -> str:
        """The name of the object that claims it."""
        return str(self).translate(_MARKED)

    def is_due(self, point: FaultPoint, epoch: int, passage: int = 1) -> bool:
        """Return whether this fault fires at that point of that epoch."""
        due = epoch >= self.epoch if point in AT_OR_AFTER else epoch == self.epoch
        return self.point == point and self.passage == passage and due


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Parse the `faults` setting."""
    return tuple(
        _parse_fault(part.strip()) for part in text.replace(";", ",").split(",") if part.strip()
    )


def _parse_fault(text: str) -> Fault:
    place, _, action = text.partition("=")
    numbered, _, epoch = place.partition("@")
    point, colon, passage = numbered.partition(":")
    if not epoch.isdecimal():
        raise ConfigError(
            f"invalid fault '{text}'",
            hint="Write <point>@<epoch>=<action>, as in state.written@3=kill.",
        )
    if point not in set(FaultPoint):
        raise ConfigError(f"unknown fault point '{point}'", hint=did_you_mean(point, FaultPoint))
    if action not in set(FaultAction):
        raise ConfigError(
            f"unknown fault action '{action}'", hint=did_you_mean(action, FaultAction)
        )
    if not colon:
        return Fault(FaultPoint(point), int(epoch), FaultAction(action))
    if point != FaultPoint.SINK_BETWEEN or not passage.isdecimal() or int(passage) == 0:
        raise ConfigError(
            f"invalid fault '{text}'",
            hint="Only sink.between has a number, from 1, as in sink.between:2@3=kill.",
        )
    return Fault(FaultPoint(point), int(epoch), FaultAction(action), int(passage))


class FaultInjector:
    """Injects faults at fault points. Without faults it does nothing and costs nothing."""

    def __init__(self, faults: tuple[Fault, ...], store: ObjectStore, folder: str) -> None:
        self._faults = faults
        self._store = store
        self._folder = folder

    def claim(self, point: FaultPoint, epoch: int, passage: int = 1) -> FaultAction | None:
        """Claim the fault that is due here, so that it never fires again. Return its action, or
        None if nothing is due.
        """
        for fault in self._faults:
            marker = f"{self._folder}/faults/{fault.marker}"
            is_due = fault.is_due(point, epoch, passage)
            if is_due and self._store.create(marker, str(fault).encode()):
                return fault.action
        return None

    def hit(self, point: FaultPoint, epoch: int, passage: int = 1) -> None:
        """Pass a fault point, performing the fault that is due there."""
        action = self.claim(point, epoch, passage)
        if action is not None:
            perform(action, point, epoch, os.getpid())


def perform(action: FaultAction, point: FaultPoint, epoch: int, worker_pid: int) -> None:
    """Perform an action. In a Spark task, `worker_pid` is the driver's process."""
    if action is FaultAction.RAISE:
        raise InjectedFault(f"fault injected at {point}, epoch {epoch}")
    if action is FaultAction.HANG:
        _block_until(lambda: os.getppid() == 1)
    os.kill(worker_pid, signal.SIGKILL if action is FaultAction.KILL else signal.SIGSTOP)
    _block_until(lambda: action is FaultAction.FREEZE and os.getpid() == worker_pid)


def _block_until(condition: Callable[[], bool]) -> None:
    """Block until a condition holds, for an hour at most."""
    deadline = time.monotonic() + 3600
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
