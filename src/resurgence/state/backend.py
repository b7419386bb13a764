"""The state backend: reads and writes a job's checkpoints in object storage.

The I/O shell around `protocol`: it lists and reads objects, calls the pure functions, and performs
their decisions. It never opens a state file; the engine does that.
"""

from __future__ import annotations

import functools
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
    EpochRange,
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
from resurgence.state.replays import Replays, next_replay, replays_done
from resurgence.storage.object_store import ObjectStore
from resurgence.storage.parallel import in_parallel


class StateBackend:
    """A job's checkpoints. Thread-safe."""

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
        """Claim the next generation. From then on, every older one is fenced out. An owner holds
        the lease of the generation that it has claimed.

        `abandoned` returns whether the caller has stopped waiting: a late claim must not fence out
        the one that replaced it. `permit` receives the generation that would be fenced out, and
        raises to prevent that. `directory` is the job's working directory.
        """
        while True:
            # In this order: a process claims a generation before it writes an epoch.
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
                raise Retired("the claim of this generation was abandoned")
            if self.store.create(self.paths.generation(record.generation), record.encode()):
                if owner is not None:
                    self.leases.renew(job, record.generation, owner, now)
                    self.leases.drop_older(record.generation)
                return record

    def require_newest(self, generation: Generation) -> None:
        """Raise Retired if a newer generation exists. Takes one request, however many generations
        there are.
        """
        outcome = next_step(Observed(generation, self._newest_since(generation)))
        if isinstance(outcome, Retire):
            raise self._overtaken(generation, outcome)

    def newest_claim(self) -> GenerationRecord | None:
        """Return the claim that fences out all others; None if there is no readable one."""
        newest = self.newest_generation()
        return self._claim(newest) if newest else None

    def newest_generation(self) -> Generation:
        """Return the generation that fences out all others; 0 if the job was never started."""
        return highest_generation(self._generation_paths())

    def _claim(self, generation: Generation) -> GenerationRecord | None:
        path = self.paths.generation(generation)
        try:
            return decode(GenerationRecord, self.store.read(path), path)
        except (DamagedState, ObjectMissing):
            return None

    def _overtaken(self, generation: Generation, outcome: Retire) -> Retired:
        """Return the error for a generation that was fenced out."""
        mine, newest = self._claim(generation), self._claim(outcome.by)
        message = f"generation {generation} was fenced out by generation {outcome.by}"
        if mine is None or newest is None or mine.claimed_by == newest.claimed_by:
            return Retired(message)
        taken_at = instant_text(newest.claimed_at)
        return TakenOver(
            f"{message}: {newest.claimed_by} took over the job at {taken_at}",
            hint="Let it run there, or stop it and start the job here again.",
        )

    def _newest_since(self, generation: Generation) -> Generation:
        """Return the newest generation, given one that was claimed. Claims can skip numbers, so all
        later ones are listed.
        """
        own = self.paths.generation(generation)
        later = self.store.list(self.paths.generations, after=own)
        return max(generation, highest_generation(each.path for each in later))

    def _generation_paths(self) -> tuple[str, ...]:
        return tuple(each.path for each in self.store.list(self.paths.generations))

    def identity(self) -> tuple[JobIdentity, int | None]:
        """Return the job's identity, and the newest rollback that its generations know of."""
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
        """Find the newest intact checkpoint, condemn the newer ones, and plan the load.

        `damaged` are state files that a worker could not read: no checkpoint that names one is
        intact.
        """
        dead = dead_ranges(self.rollbacks(claim.rollback))
        seen = Observed(claim.generation, claim.generation, self.epochs(), dead)
        sizes = self.file_sizes() if seen.epochs else {}
        chosen = CheckpointRecords()
        while isinstance(outcome := next_step(seen), Examine):
            records, faults = self._examine(seen.epochs[outcome.epoch], claim.job, sizes, damaged)
            chosen = CheckpointRecords() if faults else records
            seen.faults[outcome.epoch] = faults
        # Reading takes time: the fence is checked again before anything is written or decided.
        seen.newest = self._newest_since(claim.generation)
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
            replays_due=self._replays_due(chosen, dead),
        )

    def _replays_due(self, chosen: CheckpointRecords, dead: tuple[EpochRange, ...]) -> bool:
        """Return whether a job that has finished must run once more, to read dead letters. One that
        has not looks for them itself.
        """
        if chosen.manifest is None or not chosen.manifest.finished:
            return False
        requests = Replays(self.store, self.paths).listed(chosen.manifest.job)
        return any(
            next_replay(requests.get(operator, ()), replays_done(metadata), dead) is not None
            for operator, metadata in chosen.operators.items()
        )

    def epochs(self) -> dict[Epoch, EpochObjects]:
        """Return the objects of each epoch, oldest first."""
        return epochs_seen(each.path for each in self.store.list(self.paths.epochs))

    def file_sizes(self) -> dict[str, int]:
        """Return the size of every stored state file by path."""
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
        """Return an epoch's checkpoint and the reasons why it cannot be restored; none if it is
        standing and intact.
        """
        if objects.standing is None:
            reasons = (condemned_reasons(self.store, each) for each in objects.condemned.values())
            return CheckpointRecords(), tuple(chain.from_iterable(reasons))
        records = read_checkpoint(self.store, objects.manifests[objects.standing])
        return records, judge_checkpoint(records, job, objects.epoch, sizes, damaged).reasons

    # ---------------------------------------------------------------- rollback

    def rollbacks(self, newest: int | None = None) -> tuple[RollbackRecord, ...]:
        """Return the rollbacks in effect, in order; `newest` is one that must be among them. Raise
        NoValidCheckpoint if one is unreadable: without it, dead epochs would be restored.
        """
        last = max(newest or 0, self._last_rollback())
        try:
            records = [self._rollback(number) for number in range(1, last + 1)]
        except (DamagedState, ObjectMissing) as error:
            raise NoValidCheckpoint(
                f"cannot determine which epochs were rolled back: {error.message}",
                hint="Restore the named object from a backup, then run the job again.",
            ) from error
        return tuple(record for record in records if record is not None)

    def _last_rollback(self) -> int:
        paths = (each.path for each in self.store.list(self.paths.rollbacks))
        return max((rollback_of(path) or 0 for path in paths), default=0)

    def _rollback(self, number: int) -> RollbackRecord | None:
        """Return a rollback; None if its generation was not claimed for it, so it has no effect."""
        path = self.paths.rollback(number)
        record = decode(RollbackRecord, self.store.read(path), path)
        path = self.paths.generation(record.generation)
        try:
            claim = decode(GenerationRecord, self.store.read(path), path)
        except ObjectMissing:
            if self._newest_since(record.generation) == record.generation:
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
        """Declare all epochs after a checkpoint dead, or all epochs (epoch 0). `held` is the newest
        epoch of the job's sinks, which is above all others if the state is an older backup.

        Nothing may run under `claim`, which is used up: the rollback takes effect by claiming the
        generation after it, so the job must be claimed again to resume. Raise Retired, without
        effect, if another process claimed it first; UserError, if there is no such checkpoint.
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
            reason = (
                "was itself rolled back" if is_dead(to_epoch, dead) else "has no usable checkpoint"
            )
            choices = ", ".join(map(str, usable)) or "none"
            raise UserError(
                f"cannot roll back to epoch {to_epoch}: it {reason}",
                hint=f"Choose one of {choices}, or 0 for the beginning.",
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
            # As in publish: an existing object may be our own.
            if not self.store.create(path, data) and self.store.read(path) != data:
                raise Retired(f"cannot roll back: {path} was already written by another process")
        return record

    # ---------------------------------------------------------------- publish

    def write_metadata(
        self, metadata: Iterable[OperatorCheckpointMetadata]
    ) -> dict[OperatorId, ObjectDigest]:
        """Write each operator's metadata, one request each, all at the same time. Return the
        digests for the manifest.
        """
        writes = {each.operator: functools.partial(self._write_metadata, each) for each in metadata}
        return dict(zip(writes, in_parallel([*writes.values()]), strict=True))

    def _write_metadata(self, metadata: OperatorCheckpointMetadata) -> ObjectDigest:
        path = self.paths.operator(metadata.epoch, metadata.operator, metadata.generation)
        data = metadata.encode()
        if not self.store.create(path, data) and self.store.read(path) != data:
            raise Retired(f"{path} was already written by another process")
        return object_digest(path, data)

    def publish(self, manifest: Manifest) -> None:
        """Seal the epoch: the only atomic step. Raise Retired if another generation owns the job;
        SealLost, if an older generation, which is fenced out itself, has sealed the epoch.
        """
        self.require_newest(manifest.generation)
        path = self.paths.manifest(manifest.epoch, manifest.attempt)
        data = manifest.encode()
        # The client resends a create whose response was lost; then the existing object is our own.
        if not self.store.create(path, data) and self.store.read(path) != data:
            self.require_newest(manifest.generation)
            raise SealLost(f"epoch {manifest.epoch} was already sealed by another generation")

    def record_committed(self, record: CommittedRecord) -> None:
        """Record that the sinks have committed the epoch. Idempotent."""
        self.store.create(self.paths.committed(record.epoch), record.encode())

    def is_committed(self, epoch: Epoch) -> bool:
        return self.store.size(self.paths.committed(epoch)) is not None


def _claimant() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


_NONE_VALID_HINT = (
    "Nothing was deleted. Restore the named objects from a backup and run the job again, "
    "or choose another --state-dir or --name to start without state."
)


def _none_valid(fallbacks: Iterable[Fallback]) -> str:
    lines = [f"  epoch {each.epoch}: {reason}" for each in fallbacks for reason in each.reasons]
    return "none of the checkpoints is usable:\n" + "\n".join(lines)
