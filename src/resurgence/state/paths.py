"""Object paths of a job in the state store, and their parsing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from resurgence.ids import Epoch, Generation, JobName, OperatorId


@dataclass(frozen=True)
class JobPaths:
    """The paths under `{state-url}/{job}`. Names are unique per attempt; only a lease is
    overwritten.
    """

    job: JobName

    @property
    def generations(self) -> str:
        return f"{self.job}/generations"

    @property
    def epochs(self) -> str:
        return f"{self.job}/epochs"

    @property
    def tables(self) -> str:
        return f"{self.job}/tables"

    @property
    def leases(self) -> str:
        return f"{self.job}/leases"

    @property
    def rollbacks(self) -> str:
        return f"{self.job}/rollbacks"

    @property
    def inputs(self) -> str:
        return f"{self.job}/inputs"

    @property
    def dead_letters(self) -> str:
        """The folder of the table of dead letters. Retention never deletes it."""
        return f"{self.job}/dead-letters"

    @property
    def replays(self) -> str:
        return f"{self.job}/replays"

    def replay(self, operator: OperatorId, number: int) -> str:
        return f"{self.replays}/{operator}/{number:06}.json"

    def generation(self, generation: Generation) -> str:
        return f"{self.generations}/{generation:010}.json"

    def lease(self, generation: Generation) -> str:
        return f"{self.leases}/{generation:010}.json"

    def epoch(self, epoch: Epoch) -> str:
        return f"{self.epochs}/{epoch:010}"

    def operator(self, epoch: Epoch, operator: OperatorId, generation: Generation) -> str:
        return f"{self.epoch(epoch)}/operator-{operator}-{generation}.json"

    def manifest(self, epoch: Epoch, attempt: int) -> str:
        return f"{self.epoch(epoch)}/manifest-{attempt}.json"

    def condemned(self, epoch: Epoch, attempt: int) -> str:
        return f"{self.epoch(epoch)}/condemned-{attempt}.json"

    def committed(self, epoch: Epoch) -> str:
        return f"{self.epoch(epoch)}/committed.json"

    def rollback(self, number: int) -> str:
        return f"{self.rollbacks}/{number:06}.json"

    def table(self, operator: OperatorId, table: str) -> str:
        return f"{self.tables}/{operator}/{table}"


_GENERATION = re.compile(r"/generations/(\d{10})\.json$")
_LEASE = re.compile(r"/leases/(\d{10})\.json$")
_ROLLBACK = re.compile(r"/rollbacks/(\d{6,})\.json$")
_REPLAY = re.compile(r"/replays/([^/]+)/(\d{6,})\.json$")
_EPOCH_OBJECT = re.compile(r"/epochs/(\d{10})/([a-z]+)(?:-(.+))?\.json$")
_STATE_FILE = re.compile(r"/tables/[^/]+/[^/]+/(\d+)-(\d+)-(\d+)-[0-9a-z]+\.parquet$")


def generation_of(path: str) -> Generation | None:
    """Return the generation of a path under generations/."""
    match = _GENERATION.search(path)
    return Generation(int(match[1])) if match else None


def lease_generation(path: str) -> Generation | None:
    """Return the generation of a path under leases/."""
    match = _LEASE.search(path)
    return Generation(int(match[1])) if match else None


def rollback_of(path: str) -> int | None:
    """Return the rollback number of a path under rollbacks/."""
    match = _ROLLBACK.search(path)
    return int(match[1]) if match else None


def replay_of(path: str) -> tuple[OperatorId, int] | None:
    """Return the source and the number of a path under replays/."""
    match = _REPLAY.search(path)
    return (OperatorId(match[1]), int(match[2])) if match else None


def epoch_object(path: str) -> tuple[Epoch, str, str] | None:
    """Return (epoch, kind, rest) of a path under epochs/; kind is operator, manifest, condemned or
    committed.
    """
    match = _EPOCH_OBJECT.search(path)
    return (Epoch(int(match[1])), match[2], match[3] or "") if match else None


def state_file_epoch(path: str) -> Epoch | None:
    """Return the epoch in which a state file was written."""
    match = _STATE_FILE.search(path)
    return Epoch(int(match[1])) if match else None
