"""The checkpoint protocol: which objects were seen → what must be done. Pure; the backend does the
I/O.

Theory. An epoch exists from the moment its manifest is created, and conditional create lets that
happen once. All that a manifest names is written before it, under names no one else uses, so a
sealed epoch is complete by construction; whatever is there without a manifest is debris of a crash.
Three things can go wrong afterwards:

* The process dies between the seal and the commit of the sinks. The epoch is sealed,
  `committed.json` is missing: whoever restores it commits it again. Sinks commit by (job, epoch),
  so again is the same as once.
* A process is slow, not dead, and a new generation has started. Generations are claimed by
  conditional create, too. A process publishes only after it has looked and found no generation
  above its own; should it be overtaken between the look and the create, then the manifest is still
  created only once, and the loser retires.
* Something stored is damaged. A manifest whose objects do not match it is condemned, by a record
  beside it, and the next older one is taken. The epochs after that one are replayed under their own
  numbers. They were sealed, so their output may be visible: the replay must read the same input.
  Their input stands in three places (the source's metadata, the manifest, `committed.json`) and any
  one of them will do.

An epoch that was never sealed was never committed and may read anything; for simplicity it reads
what it recorded, if it recorded anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from resurgence.ids import Epoch, Generation, JobIdentity, OperatorId
from resurgence.state.paths import epoch_object, generation_of
from resurgence.state.records import (
    InputRange,
    Manifest,
    OperatorCheckpointMetadata,
    Part,
)


class Fallback(Part):
    """A checkpoint that could not be used, and why."""

    epoch: Epoch
    reasons: tuple[str, ...]


class RecordedEpoch(Part):
    """What is known of an epoch after the restored one: its input and whether its sinks are
    done.
    """

    inputs: dict[OperatorId, InputRange]
    sealed: bool
    """Its output may be visible: it must be replayed over exactly this input."""
    committed: bool
    attempt: int
    """The number for the next manifest of this epoch."""


@dataclass(frozen=True)
class MayPublish:
    """No generation is above mine: go on and create the manifest."""


@dataclass(frozen=True)
class RetireOvertaken:
    """A newer generation owns the job: touch nothing and stop."""

    by: Generation


def may_publish(mine: Generation, generation_paths: Iterable[str]) -> MayPublish | RetireOvertaken:
    """Whether a generation may seal or condemn, given the generations that are there."""
    highest = highest_generation(generation_paths)
    return RetireOvertaken(highest) if highest > mine else MayPublish()


def highest_generation(generation_paths: Iterable[str]) -> Generation:
    """The fence: the highest generation there is, or 0."""
    found = [
        generation for path in generation_paths if (generation := generation_of(path)) is not None
    ]
    return max(found, default=Generation(0))


@dataclass
class EpochObjects:
    """What lies in one epoch's folder."""

    epoch: Epoch
    operators: list[str] = field(default_factory=list)
    manifests: dict[int, str] = field(default_factory=dict)
    condemned: dict[int, str] = field(default_factory=dict)
    committed: str | None = None

    @property
    def standing(self) -> int | None:
        """The attempt whose manifest stands: the newest, if it is not condemned."""
        alive = [attempt for attempt in self.manifests if attempt not in self.condemned]
        return max(alive, default=None)

    @property
    def next_attempt(self) -> int:
        """The number for a new manifest: 0 unless earlier ones were condemned."""
        return max((attempt + 1 for attempt in (*self.condemned, *self.manifests)), default=0)

    def paths(self) -> tuple[str, ...]:
        """Everything in the folder, manifests first: without them the rest is debris."""
        committed = (self.committed,) if self.committed else ()
        return (
            *self.manifests.values(),
            *self.condemned.values(),
            *self.operators,
            *committed,
        )


def epochs_seen(paths: Iterable[str]) -> dict[Epoch, EpochObjects]:
    """A listing of epochs/, sorted into epochs, oldest first. Foreign names are passed over."""
    seen: dict[Epoch, EpochObjects] = {}
    for path in paths:
        parsed = epoch_object(path)
        if parsed is None:
            continue
        epoch, kind, rest = parsed
        objects = seen.setdefault(epoch, EpochObjects(epoch))
        if kind == "operator":
            objects.operators.append(path)
        elif kind == "committed":
            objects.committed = path
        elif kind == "manifest" and rest.isdecimal():
            objects.manifests[int(rest)] = path
        elif kind == "condemned" and rest.isdecimal():
            objects.condemned[int(rest)] = path
    return dict(sorted(seen.items()))


def lost_seal(objects: EpochObjects) -> str | None:
    """Why an epoch without a standing manifest must once have had one, if it must."""
    if objects.standing is None and not objects.condemned and objects.committed is not None:
        return "its sinks are committed, but its manifest is missing"
    return None


def manifest_faults(manifest: Manifest, job: JobIdentity, objects: EpochObjects) -> list[str]:
    """What is wrong with a manifest by itself."""
    faults = []
    if manifest.job != job:
        faults.append(f"the manifest belongs to another job ({manifest.job})")
    if manifest.epoch != objects.epoch:
        faults.append(f"the manifest is of epoch {manifest.epoch}")
    listed = set(objects.operators)
    for operator, digest in manifest.operators.items():
        if digest.path not in listed:
            faults.append(f"the metadata of {operator} is missing ({digest.path})")
    return faults


def metadata_faults(
    metadata: OperatorCheckpointMetadata,
    manifest: Manifest,
    stored_sizes: Mapping[str, int],
    damaged: frozenset[str],
) -> list[str]:
    """What is wrong with an operator's metadata and the files that it names."""
    faults = []
    if (metadata.job, metadata.epoch) != (manifest.job, manifest.epoch):
        faults.append(
            f"the metadata of {metadata.operator} is of job {metadata.job}, epoch {metadata.epoch}"
        )
    for name, table in metadata.tables.items():
        for file in table.files:
            size = stored_sizes.get(file.path)
            where = f"state file {file.path} of {metadata.operator}.{name}"
            if size is None:
                faults.append(f"{where} is missing")
            elif size != file.bytes:
                faults.append(f"{where} has {size} bytes instead of {file.bytes}")
            elif file.path in damaged:
                faults.append(f"{where} failed its checksum")
    return faults
