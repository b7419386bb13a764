"""The state backend: reads and writes a job's checkpoints in object storage.

The shell around `protocol`: it lists and reads, asks the pure functions, and performs. It never
looks into a state file; the engine does that.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import chain

from resurgence.clock import instant_text
from resurgence.errors import (
    DamagedState,
    NoValidCheckpoint,
    ObjectMissing,
    Retired,
    SealLost,
    TakenOver,
    UserError,
)
from resurgence.ids import (
    NO_EPOCH,
    Epoch,
    Generation,
    JobIdentity,
    JobName,
    OperatorId,
    new_identity,
)
from resurgence.state.identity import find_identity, identity_missing
from resurgence.state.load_plan import LoadPlan, operator_load
from resurgence.state.paths import JobPaths, rollback_of, state_file_epoch
from resurgence.state.protocol.checkpoint_records import (
    CheckpointRecords,
    condemned_reasons,
    judge_checkpoint,
    read_checkpoint,
)
from resurgence.state.protocol.decisions import (
    Claim,
    EpochObjects,
    Examine,
    FallBack,
    Fallback,
    Impossible,
    Observed,
    Orphaned,
    Ready,
    ReplayCommit,
    Retire,
    dead_ranges,
    epochs_seen,
    highest_generation,
    is_dead,
    living,
    next_step,
)
from resurgence.state.protocol.ownership import Leases
from resurgence.state.protocol.recorded_epochs import RecordedEpochs
from resurgence.state.records import (
    CommittedRecord,
    CondemnedRecord,
    GenerationRecord,
    Manifest,
    ObjectDigest,
    OperatorCheckpointMetadata,
    Owner,
    RollbackRecord,
    decode,
    object_digest,
)
from resurgence.storage.object_store import ObjectStore


class StateBackend:
    """A job's checkpoints. One instance may be used by several threads."""

    def __init__(self, store: ObjectStore, job: JobName) -> None:
        self.store = store
        self.paths = JobPaths(job)
        self.leases = Leases(store, self.paths)
        self.recorded = RecordedEpochs(store, self.paths)

    # ---------------------------------------------------------------- generations

    def claim_generation(
        self,
        now: datetime,
        abandoned: Callable[[], bool] = lambda: False,
        *,
        owner: Owner | None = None,
        permit: Callable[[Generation], None] = lambda _newest: None,
        directory: str | None = None,
    ) -> GenerationRecord:
        """Claim the next generation. From here on, every older one is fenced out. An owner holds the
        lease of what it has claimed.

        `abandoned` says that whoever asked does not wait any more: a claim that comes too late must
        not fence out the one that was made instead. `permit` is told which generation would be
        fenced out, and raises if that must not be. `directory` is where the job runs.
        """
        while True:
            # In this order: whoever leaves an epoch has claimed a generation before.
            epochs = self.epochs()
            paths = self._generation_paths()
            outcome = next_step(Observed(None, highest_generation(paths), epochs))
            assert isinstance(outcome, Claim)
            found = find_identity(self.store, self.paths, paths, epochs)
            job, rollback = found or (new_identity(), None)
            record = GenerationRecord(
                job=job,
                generation=outcome.generation,
                claimed_at=now,
                claimed_by=owner.description if owner else _claimant(),
                rollback=rollback,
                directory=directory,
            )
            permit(highest_generation(paths))
            if abandoned():
                raise Retired("whoever asked for this generation waits no longer")
            if self.store.create(self.paths.generation(record.generation), record.encode()):
                if owner is not None:
                    self.leases.renew(job, record.generation, owner, now)
                    self.leases.drop_older(record.generation)
                return record

    def require_newest(self, generation: Generation) -> None:
        """Raise Retired if a newer generation exists."""
        outcome = next_step(Observed(generation, highest_generation(self._generation_paths())))
        if isinstance(outcome, Retire):
            raise self._overtaken(generation, outcome)

    def newest_claim(self) -> GenerationRecord | None:
        """The claim that fences all others out; None if there is none, or it cannot be read."""
        newest = self.newest_generation()
        return self._claim(newest) if newest else None

    def newest_generation(self) -> Generation:
        """The generation that fences all others out; 0 if the job was never started."""
        return highest_generation(self._generation_paths())

    def _claim(self, generation: Generation) -> GenerationRecord | None:
        path = self.paths.generation(generation)
        try:
            return decode(GenerationRecord, self.store.read(path), path)
        except (DamagedState, ObjectMissing):
            return None

    def _overtaken(self, generation: Generation, outcome: Retire) -> Retired:
        """What to tell a generation that was fenced out: by its own controller, or by whom."""
        mine, newest = self._claim(generation), self._claim(outcome.by)
        told = f"generation {generation} was overtaken by generation {outcome.by}"
        if mine is None or newest is None or mine.claimed_by == newest.claimed_by:
            return Retired(told)
        return TakenOver(
            f"{told}: {newest.claimed_by} took over the job at {instant_text(newest.claimed_at)}",
            hint="Let it go on there, or stop it and start the job here again.",
        )

    def _generation_paths(self) -> tuple[str, ...]:
        return tuple(each.path for each in self.store.list(self.paths.generations))

    def identity(self) -> tuple[JobIdentity, int | None]:
        """Whose checkpoints these are, and the newest rollback that its generations know of."""
        epochs = self.epochs()
        found = find_identity(self.store, self.paths, self._generation_paths(), epochs)
        if found is None:
            raise identity_missing(self.store, self.paths)
        return found

    # ---------------------------------------------------------------- restore

    def prepare_checkpoint_load(
        self,
        claim: GenerationRecord,
        parallelism: int,
        damaged: frozenset[str] = frozenset(),
    ) -> LoadPlan:
        """Find the newest checkpoint that is whole, condemn the newer ones, and plan the load.

        `damaged` are state files that a worker found unreadable: no checkpoint that names one is
        whole.
        """
        dead = dead_ranges(self.rollbacks(claim.rollback))
        seen = Observed(claim.generation, claim.generation, self.epochs(), dead)
        sizes = self.file_sizes() if seen.epochs else {}
        chosen = CheckpointRecords()
        while isinstance(outcome := next_step(seen), Examine):
            records, faults = self._examine(seen.epochs[outcome.epoch], claim.job, sizes, damaged)
            chosen = CheckpointRecords() if faults else records
            seen.faults[outcome.epoch] = faults
        # Reading took a while: nothing is written or decided before another look at the fence.
        seen.newest = highest_generation(self._generation_paths())
        while isinstance(outcome := next_step(seen), FallBack):
            self._condemn(claim, outcome)
            seen.epochs[outcome.epoch].condemned[outcome.attempt] = ""
        if isinstance(outcome, Retire):
            raise self._overtaken(claim.generation, outcome)
        if isinstance(outcome, Impossible):
            raise NoValidCheckpoint(_none_valid(outcome.fallbacks), hint=_NONE_VALID_HINT)
        assert isinstance(outcome, Ready | ReplayCommit | Orphaned)
        epoch = chosen.manifest.epoch if chosen.manifest else NO_EPOCH
        return LoadPlan(
            job=claim.job,
            generation=claim.generation,
            parallelism=parallelism,
            epoch=epoch,
            manifest=chosen.manifest,
            operators={
                operator: operator_load(metadata, parallelism)
                for operator, metadata in chosen.operators.items()
            },
            commit_pending=isinstance(outcome, ReplayCommit),
            recorded=self.recorded.after(epoch, living(seen.epochs, dead), dead, claim.job),
            fallbacks=() if isinstance(outcome, Orphaned) else outcome.fallbacks,
            dead=dead,
        )

    def epochs(self) -> dict[Epoch, EpochObjects]:
        """What lies in the folder of each epoch, oldest first."""
        return epochs_seen(each.path for each in self.store.list(self.paths.epochs))

    def file_sizes(self) -> dict[str, int]:
        """Every state file that is stored, with its size."""
        return {each.path: each.size for each in self.store.list(self.paths.tables)}

    def _condemn(self, claim: GenerationRecord, outcome: FallBack) -> None:
        record = CondemnedRecord(
            job=claim.job,
            epoch=outcome.epoch,
            attempt=outcome.attempt,
            generation=claim.generation,
            reasons=outcome.reasons,
        )
        self.store.create(self.paths.condemned(record.epoch, record.attempt), record.encode())

    def _examine(
        self,
        objects: EpochObjects,
        job: JobIdentity,
        sizes: Mapping[str, int],
        damaged: frozenset[str] = frozenset(),
    ) -> tuple[CheckpointRecords, tuple[str, ...]]:
        """An epoch's checkpoint and why it cannot be restored: nothing, if it stands and is whole."""
        if objects.standing is None:
            reasons = (condemned_reasons(self.store, each) for each in objects.condemned.values())
            return CheckpointRecords(), tuple(chain.from_iterable(reasons))
        records = read_checkpoint(self.store, objects.manifests[objects.standing])
        return records, judge_checkpoint(records, job, objects.epoch, sizes, damaged).reasons

    # ---------------------------------------------------------------- rollback

    def rollbacks(self, newest: int | None = None) -> tuple[RollbackRecord, ...]:
        """The rollbacks that count, in their order; `newest` is one that must be among them. One
        that cannot be read is an error: without it, dead epochs would come back to life.
        """
        last = max(newest or 0, self._last_rollback())
        try:
            records = [self._rollback(number) for number in range(1, last + 1)]
        except (DamagedState, ObjectMissing) as error:
            raise NoValidCheckpoint(
                f"it is not known which epochs were rolled back: {error.message}",
                hint="bring the named object back from a copy and run again",
            ) from error
        return tuple(record for record in records if record is not None)

    def _last_rollback(self) -> int:
        paths = (each.path for each in self.store.list(self.paths.rollbacks))
        return max((rollback_of(path) or 0 for path in paths), default=0)

    def _rollback(self, number: int) -> RollbackRecord | None:
        """A rollback, if it counts: if its generation was claimed for it."""
        path = self.paths.rollback(number)
        record = decode(RollbackRecord, self.store.read(path), path)
        path = self.paths.generation(record.generation)
        try:
            claim = decode(GenerationRecord, self.store.read(path), path)
        except ObjectMissing:
            if highest_generation(self._generation_paths()) < record.generation:
                return None
            raise
        return record if claim.rollback == number else None

    def record_rollback(
        self,
        claim: GenerationRecord,
        to_epoch: Epoch,
        now: datetime,
        held: Epoch = NO_EPOCH,
    ) -> RollbackRecord:
        """Declare dead all that came after a checkpoint, or everything (epoch 0). `held` is the
        newest epoch of the job's sinks: it is above all others if the state is an older copy.

        Nothing may run under `claim`. It is spent: the rollback counts by claiming the generation
        after it, so whoever goes on claims again. Raises Retired, with no effect, if someone else
        was faster; UserError, if the job cannot go back there.
        """
        self.require_newest(claim.generation)
        rollbacks = self.rollbacks(claim.rollback)
        epochs, sizes, dead = self.epochs(), self.file_sizes(), dead_ranges(rollbacks)
        usable = [
            epoch
            for epoch, objects in living(epochs, dead).items()
            if objects.standing is not None and not self._examine(objects, claim.job, sizes)[1]
        ]
        if to_epoch not in (NO_EPOCH, *usable):
            lacks = (
                "was itself rolled back" if is_dead(to_epoch, dead) else "has no usable checkpoint"
            )
            raise UserError(
                f"cannot roll back to epoch {to_epoch}: it {lacks}",
                hint=f"choose one of {', '.join(map(str, usable)) or 'none'}, or 0 for nothing",
            )
        written = (each for path in sizes if (each := state_file_epoch(path)) is not None)
        record = RollbackRecord(
            job=claim.job,
            number=self._last_rollback() + 1,
            to_epoch=to_epoch,
            highest_epoch=max(
                (held, *epochs, *written, *(each.highest_epoch for each in rollbacks))
            ),
            generation=Generation(claim.generation + 1),
            recorded_at=now,
        )
        claimed = GenerationRecord(
            job=claim.job,
            generation=record.generation,
            claimed_at=now,
            claimed_by=_claimant(),
            rollback=record.number,
            directory=claim.directory,
        )
        for path, data in (
            (self.paths.rollback(record.number), record.encode()),
            (self.paths.generation(claimed.generation), claimed.encode()),
        ):
            # As with publish: what is there may be ours.
            if not self.store.create(path, data) and self.store.read(path) != data:
                raise Retired(f"{path} was already written by someone else: nothing is rolled back")
        return record

    # ---------------------------------------------------------------- publish

    def write_metadata(
        self, metadata: Iterable[OperatorCheckpointMetadata]
    ) -> dict[OperatorId, ObjectDigest]:
        """Write each operator's metadata, one request each; gives the digests for the manifest."""
        digests = {}
        for each in metadata:
            path = self.paths.operator(each.epoch, each.operator, each.generation)
            data = each.encode()
            if not self.store.create(path, data) and self.store.read(path) != data:
                raise Retired(f"{path} was already written by someone else")
            digests[each.operator] = object_digest(path, data)
        return digests

    def publish(self, manifest: Manifest) -> None:
        """Seal the epoch: the one atomic step. Raises Retired if the job, or the epoch, belongs
        to someone else; SealLost, if that was an older generation, which cannot go on itself.
        """
        self.require_newest(manifest.generation)
        path = self.paths.manifest(manifest.epoch, manifest.attempt)
        data = manifest.encode()
        # A create whose answer was lost is sent again by the client; then what is there is ours.
        if not self.store.create(path, data) and self.store.read(path) != data:
            self.require_newest(manifest.generation)
            raise SealLost(f"epoch {manifest.epoch} was already sealed by someone else")

    def record_committed(self, record: CommittedRecord) -> None:
        """Say that the sinks are done. Whoever said so first, it is the same fact."""
        self.store.create(self.paths.committed(record.epoch), record.encode())

    def is_committed(self, epoch: Epoch) -> bool:
        return self.store.size(self.paths.committed(epoch)) is not None


def _claimant() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


_NONE_VALID_HINT = (
    "nothing was deleted: bring the named objects back from a copy and run again, "
    "or choose another --state-dir or --name to begin from nothing"
)


def _none_valid(fallbacks: Iterable[Fallback]) -> str:
    lines = [f"  epoch {each.epoch}: {reason}" for each in fallbacks for reason in each.reasons]
    return "there are checkpoints, but none can be used:\n" + "\n".join(lines)
