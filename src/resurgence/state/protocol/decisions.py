"""The checkpoint protocol: which objects were seen → what must be done. Pure; the backend does the
I/O.

Theory. An epoch exists from the moment its manifest is created, and conditional create lets that
happen once. All that a manifest names is written before it, under names no one else uses, so a
sealed epoch is complete by construction; whatever is there without a manifest is debris of a crash.
Four things can happen afterwards:

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
* Someone rolls the job back to epoch N. Let M be the highest epoch of which anything is seen: the
  epochs N+1..M are dead from then on. They are never chosen, replayed or committed again, and the
  job goes on at M+1 with N as parent. A rollback counts from the moment the next generation is
  claimed for it, by conditional create like any other claim. If someone else claims that generation
  first, the record of the rollback is there but never counts: whoever claimed did not know of it.

Why no living epoch can have a dead parent. Whoever seals epoch X writes its metadata, then looks at
the fence, then creates the manifest. If he was overtaken after that look by the generation that
rolls back, then his metadata was there before it listed the epochs, so X is at most M, and dead.
Every later generation is claimed after the rollback counts, and knows of it.

An epoch that was never sealed was never committed and may read anything; for simplicity it reads
what it recorded, if it recorded anything.

`next_step` is all of this as one function. Whoever asks puts in what was seen so far; if that is
not enough, the answer is what to look at next (`Examine`), newest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from resurgence.ids import NO_EPOCH, Epoch, Generation, JobIdentity, OperatorId
from resurgence.state.paths import epoch_object, generation_of
from resurgence.state.records import InputRange, Part, RollbackRecord

EpochRange = tuple[Epoch, Epoch]
"""First and last, both included."""


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


# ---------------------------------------------------------------- rollbacks


def dead_ranges(rollbacks: Iterable[RollbackRecord]) -> tuple[EpochRange, ...]:
    """The epochs that were rolled back, by all rollbacks together, oldest first."""
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
    """The epochs that were not rolled back."""
    ranges = tuple(dead)
    return {epoch: objects for epoch, objects in epochs.items() if not is_dead(epoch, ranges)}


def epoch_after(epoch: Epoch, dead: Iterable[EpochRange]) -> Epoch:
    """The number of the epoch that follows on another: the next one that is not dead."""
    following = epoch + 1
    for first, last in sorted(dead):
        if first <= following <= last:
            following = last + 1
    return Epoch(following)


# ---------------------------------------------------------------- the decision


@dataclass
class Observed:
    """What a generation has seen of its job so far."""

    mine: Generation | None
    """None: not claimed yet."""
    newest: Generation
    """The fence."""
    epochs: Mapping[Epoch, EpochObjects] = field(default_factory=dict)
    dead: tuple[EpochRange, ...] = ()
    faults: dict[Epoch, tuple[str, ...]] = field(default_factory=dict)
    """Of the epochs examined so far: why their checkpoint cannot be used; empty if it is whole."""


@dataclass(frozen=True)
class Claim:
    """Create the record of this generation; if someone else did, look again."""

    generation: Generation


@dataclass(frozen=True)
class Retire:
    """A newer generation owns the job: touch nothing and stop."""

    by: Generation


@dataclass(frozen=True)
class Examine:
    """Find out whether the newest checkpoint of this epoch is whole, and ask again."""

    epoch: Epoch


@dataclass(frozen=True)
class FallBack:
    """An older checkpoint is whole: condemn this one, and ask again."""

    epoch: Epoch
    attempt: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Ready:
    """Go on from this checkpoint, whose sinks are done. Epoch 0: there was never anything."""

    epoch: Epoch
    fallbacks: tuple[Fallback, ...] = ()


@dataclass(frozen=True)
class ReplayCommit:
    """Go on from this checkpoint, but commit its sinks first: nothing says that they are done."""

    epoch: Epoch
    fallbacks: tuple[Fallback, ...] = ()


@dataclass(frozen=True)
class Orphaned:
    """All there is was begun and never sealed: begin from nothing, and read what they recorded."""

    epochs: tuple[Epoch, ...]


@dataclass(frozen=True)
class Impossible:
    """There are, or must have been, checkpoints, and none can be used: touch nothing and fail."""

    fallbacks: tuple[Fallback, ...]


Outcome = Claim | Retire | Examine | FallBack | Ready | ReplayCommit | Orphaned | Impossible


def prevailing_identity(said: Sequence[JobIdentity]) -> JobIdentity:
    """Whose job it is: what most of its newest generations and manifests say; the first, if they
    are even.
    """
    votes = Counter(said)
    return max(said, key=lambda each: votes[each])


def _at_work(epochs: Mapping[Epoch, EpochObjects]) -> Generation:
    """The highest generation that has left operator metadata: should its record be lost, its number
    is still taken.
    """
    names = (path.removesuffix(".json") for each in epochs.values() for path in each.operators)
    numbers = (name.rpartition("-")[2] for name in names)
    return max(
        (Generation(int(each)) for each in numbers if each.isdecimal()), default=Generation(0)
    )


def next_step(seen: Observed) -> Outcome:
    """What a generation must do, given what it has seen."""
    if seen.mine is None:
        return Claim(Generation(max(seen.newest, _at_work(seen.epochs)) + 1))
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
    """The checkpoint that must have been there: an epoch is only begun when the one that it
    follows on is sealed.
    """
    begun = max(alive, default=NO_EPOCH)
    if begun <= epoch_after(NO_EPOCH, dead):
        return None
    before = begun - 1
    for first, last in reversed(dead):
        if first <= before <= last:
            before = first - 1
    reason = f"epoch {begun} was begun, but the manifests before it are missing"
    return Fallback(epoch=Epoch(before), reasons=(reason,))
