"""The checkpoint protocol: maps the objects that were seen to the next action. Pure; the backend
does the I/O.

Theory. An epoch exists from the moment its manifest is created, and conditional create lets that
happen once. Everything that a manifest names is written before it, under unique names, so a sealed
epoch is complete by construction; objects without a manifest are debris of a crash. Four things can
happen afterwards:

* The process dies between the seal and the commit of the sinks. The epoch is sealed, but
  `committed.json` is missing: the generation that restores it commits it again. Sinks commit by
  (job, epoch), so the commit is idempotent.
* A process is slow, not dead, and a new generation has started. Generations are claimed by
  conditional create as well. A process publishes only after it has checked that no generation is
  above its own. If it is overtaken between the check and the create, the manifest is still created
  only once, and the loser retires.
* A stored object is damaged. A manifest whose objects do not match it is condemned by a record
  beside it, and the next older one is chosen. The epochs after that one are replayed under their
  own numbers. They were sealed, so their output may be visible: the replay must read the same
  input. Their input is recorded in three places (the source's metadata, the manifest,
  `committed.json`), and each of them is sufficient.
* Someone rolls the job back to epoch N. Let M be the highest epoch of which any object is seen: the
  epochs N+1..M are dead from then on. They are never chosen, replayed or committed again, and the
  job resumes at M+1 with N as parent. A rollback takes effect when the next generation is claimed
  for it, by conditional create like any other claim. If another process claims that generation
  first, the record of the rollback exists but never takes effect, because the claimant did not know
  of it.

Why no live epoch can have a dead parent. The generation that seals epoch X writes its metadata,
then checks the fence, then creates the manifest. If it was overtaken after that check by the
generation that rolls back, then its metadata existed before the latter listed the epochs, so X is
at most M, and dead. Every later generation is claimed after the rollback takes effect, and knows of
it.

An epoch that was never sealed was never committed and may read any input; for simplicity it reads
the input that it recorded, if any.

`next_step` implements all of this in one function. The caller passes what it has seen so far; if
that is not enough, the outcome names the epoch to examine next (`Examine`), newest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import Field

from resurgence.ids import NO_EPOCH, Epoch, Generation, JobIdentity, OperatorId
from resurgence.state.paths import epoch_object, generation_of
from resurgence.state.records import InputRange, Part, RollbackRecord

EpochRange = tuple[Epoch, Epoch]
"""First and last, inclusive."""


class Fallback(Part):
    """A checkpoint that is unusable, and the reasons."""

    epoch: Epoch
    reasons: tuple[str, ...]


class RecordedEpoch(Part):
    """The record of an epoch after the restored one: its input, and whether it is committed."""

    inputs: dict[OperatorId, InputRange]
    rows_in: dict[OperatorId, int] = Field(default_factory=dict)
    """How many rows each source has read, as far as that is on record."""
    sealed: bool
    """Its output may be visible: it must be replayed over exactly this input."""
    committed: bool
    attempt: int
    """The number for the next manifest of this epoch."""


def highest_generation(generation_paths: Iterable[str]) -> Generation:
    """Return the fence: the highest generation, or 0 if there is none."""
    found = [
        generation for path in generation_paths if (generation := generation_of(path)) is not None
    ]
    return max(found, default=Generation(0))


@dataclass
class EpochObjects:
    """The objects in one epoch's folder."""

    epoch: Epoch
    operators: list[str] = field(default_factory=list)
    manifests: dict[int, str] = field(default_factory=dict)
    condemned: dict[int, str] = field(default_factory=dict)
    committed: str | None = None

    @property
    def standing(self) -> int | None:
        """The attempt whose manifest is valid: the newest that is not condemned."""
        alive = [attempt for attempt in self.manifests if attempt not in self.condemned]
        return max(alive, default=None)

    @property
    def next_attempt(self) -> int:
        """The number for a new manifest: 0 unless earlier ones were condemned."""
        return max((attempt + 1 for attempt in (*self.condemned, *self.manifests)), default=0)

    def paths(self) -> tuple[str, ...]:
        """Return all objects in the folder."""
        return (*self.manifests.values(), *self.other_paths())

    def other_paths(self) -> tuple[str, ...]:
        """Return all objects but the manifests: without a manifest they are debris."""
        committed = (self.committed,) if self.committed else ()
        return (*self.condemned.values(), *self.operators, *committed)


def epochs_seen(paths: Iterable[str]) -> dict[Epoch, EpochObjects]:
    """Group a listing of epochs/ by epoch, oldest first. Foreign names are ignored."""
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
    """Return why an epoch without a standing manifest must once have had one; None otherwise."""
    if objects.standing is None and not objects.condemned and objects.committed is not None:
        return "its sinks are committed, but its manifest is missing"
    return None


# ---------------------------------------------------------------- rollbacks


def dead_ranges(rollbacks: Iterable[RollbackRecord]) -> tuple[EpochRange, ...]:
    """Return the union of the epochs that rollbacks declared dead, oldest first."""
    united: list[EpochRange] = []
    for first, last in sorted((each.to_epoch + 1, each.highest_epoch) for each in rollbacks):
        if united and first <= united[-1][1] + 1:
            united[-1] = (united[-1][0], Epoch(max(united[-1][1], last)))
        elif first <= last:
            united.append((Epoch(first), Epoch(last)))
    return tuple(united)


def is_dead(epoch: Epoch, dead: Iterable[EpochRange]) -> bool:
    return any(first <= epoch <= last for first, last in dead)


def living(
    epochs: Mapping[Epoch, EpochObjects], dead: Iterable[EpochRange]
) -> dict[Epoch, EpochObjects]:
    """Return the epochs that were not rolled back."""
    ranges = tuple(dead)
    return {epoch: objects for epoch, objects in epochs.items() if not is_dead(epoch, ranges)}


def epoch_after(epoch: Epoch, dead: Iterable[EpochRange]) -> Epoch:
    """Return the epoch that follows another: the next one that is not dead."""
    following = epoch + 1
    for first, last in sorted(dead):
        if first <= following <= last:
            following = last + 1
    return Epoch(following)


# ---------------------------------------------------------------- the decision


@dataclass
class Observed:
    """The objects of a job that a generation has seen so far."""

    mine: Generation | None
    """None: not claimed yet."""
    newest: Generation
    """The fence."""
    epochs: Mapping[Epoch, EpochObjects] = field(default_factory=dict)
    dead: tuple[EpochRange, ...] = ()
    faults: dict[Epoch, tuple[str, ...]] = field(default_factory=dict)
    """Why the checkpoint of an examined epoch is unusable; empty if it is intact."""


@dataclass(frozen=True)
class Claim:
    """Create the record of this generation; if another process did, observe again."""

    generation: Generation


@dataclass(frozen=True)
class Retire:
    """A newer generation owns the job: stop without writing anything."""

    by: Generation


@dataclass(frozen=True)
class Examine:
    """Check whether the newest checkpoint of this epoch is intact, and call again."""

    epoch: Epoch


@dataclass(frozen=True)
class FallBack:
    """An older checkpoint is intact: condemn this one, and call again."""

    epoch: Epoch
    attempt: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Ready:
    """Resume from this checkpoint, which is committed. Epoch 0: the job has no state."""

    epoch: Epoch
    fallbacks: tuple[Fallback, ...] = ()


@dataclass(frozen=True)
class ReplayCommit:
    """Resume from this checkpoint, but commit its sinks first: no record states that they did."""

    epoch: Epoch
    fallbacks: tuple[Fallback, ...] = ()


@dataclass(frozen=True)
class Orphaned:
    """All epochs were begun and none was sealed: start empty, and replay their recorded input."""

    epochs: tuple[Epoch, ...]


@dataclass(frozen=True)
class Impossible:
    """Checkpoints exist, or must have existed, and none is usable: fail without writing."""

    fallbacks: tuple[Fallback, ...]


Outcome = Claim | Retire | Examine | FallBack | Ready | ReplayCommit | Orphaned | Impossible


def prevailing_identity(votes: Sequence[JobIdentity]) -> JobIdentity:
    """Return the identity with the most votes; the first one on a tie."""
    counts = Counter(votes)
    return max(votes, key=lambda each: counts[each])


def _highest_writer(epochs: Mapping[Epoch, EpochObjects]) -> Generation:
    """Return the highest generation that has written operator metadata: if its record is lost, its
    number is still in use.
    """
    names = (path.removesuffix(".json") for each in epochs.values() for path in each.operators)
    numbers = (name.rpartition("-")[2] for name in names)
    return max(
        (Generation(int(each)) for each in numbers if each.isdecimal()), default=Generation(0)
    )


def next_step(seen: Observed) -> Outcome:
    """Return what a generation must do, given what it has seen."""
    if seen.mine is None:
        return Claim(Generation(max(seen.newest, _highest_writer(seen.epochs)) + 1))
    if seen.newest > seen.mine:
        return Retire(seen.newest)
    alive = living(seen.epochs, seen.dead)
    passed: list[Fallback] = []
    for epoch in sorted(alive, reverse=True):
        objects = alive[epoch]
        if lost := lost_seal(objects):
            passed.append(Fallback(epoch=epoch, reasons=(lost,)))
        if objects.standing is None and not objects.condemned:
            continue
        faults = seen.faults.get(epoch)
        if faults is None:
            return Examine(epoch)
        if faults or objects.standing is None:
            passed.append(Fallback(epoch=epoch, reasons=faults))
            continue
        for each in passed:
            attempt = alive[each.epoch].standing
            if attempt is not None:
                return FallBack(each.epoch, attempt, each.reasons)
        found = ReplayCommit if objects.committed is None else Ready
        return found(epoch, tuple(passed))
    if not passed and (missing := _missing_before(alive, seen.dead)):
        passed.append(missing)
    if passed:
        return Impossible(tuple(passed))
    return Orphaned(tuple(alive)) if alive else Ready(NO_EPOCH)


def _missing_before(
    alive: Mapping[Epoch, EpochObjects], dead: tuple[EpochRange, ...]
) -> Fallback | None:
    """Return the checkpoint that must have existed: an epoch begins only after its parent was
    sealed.
    """
    begun = max(alive, default=NO_EPOCH)
    if begun <= epoch_after(NO_EPOCH, dead):
        return None
    before = begun - 1
    for first, last in reversed(dead):
        if first <= before <= last:
            before = first - 1
    reason = f"epoch {begun} was started, but the manifests before it are missing"
    return Fallback(epoch=Epoch(before), reasons=(reason,))
