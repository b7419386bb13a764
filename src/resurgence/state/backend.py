"""The state backend: reads and writes a job's checkpoints in object storage.

The shell around `protocol`: it lists and reads, asks the pure functions, and performs. It never
looks into a state file; the engine does that.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterable, Mapping
from datetime import datetime

from resurgence.errors import (
    DamagedState,
    IdentityMissing,
    NewerFormat,
    NoValidCheckpoint,
    ObjectMissing,
    Retired,
    SealLost,
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
from resurgence.state.load_plan import LoadPlan, operator_load
from resurgence.state.paths import JobPaths
from resurgence.state.protocol import (
    EpochObjects,
    Fallback,
    RecordedEpoch,
    RetireOvertaken,
    epochs_seen,
    highest_generation,
    lost_seal,
    manifest_faults,
    may_publish,
    metadata_faults,
)
from resurgence.state.records import (
    CommittedRecord,
    CondemnedRecord,
    GenerationRecord,
    InputRange,
    Manifest,
    ObjectDigest,
    OperatorCheckpointMetadata,
    decode,
    digest_of,
)
from resurgence.storage.object_store import ObjectStore

UNUSABLE = (DamagedState, ObjectMissing, NewerFormat)
"""What makes one record unusable. A job whose newest generation is of a newer format is refused
as a whole.
"""

Checkpoint = tuple[Manifest, dict[OperatorId, OperatorCheckpointMetadata]]


class StateBackend:
    """A job's checkpoints. One instance may be used by several threads."""

    def __init__(self, store: ObjectStore, job: JobName) -> None:
        self.store = store
        self.paths = JobPaths(job)

    # ---------------------------------------------------------------- generations

    def claim_generation(self, now: datetime) -> GenerationRecord:
        """Claim the next generation. From here on, every older one is fenced out."""
        claimant = f"{socket.gethostname()}:{os.getpid()}"
        while True:
            paths = self._generation_paths()
            highest = highest_generation(paths)
            identity = self._identity(paths)
            record = GenerationRecord(
                job=identity,
                generation=Generation(highest + 1),
                claimed_at=now,
                claimed_by=claimant,
            )
            if self.store.create(self.paths.generation(record.generation), record.encode()):
                return record

    def require_newest(self, generation: Generation) -> None:
        """Raise Retired if a newer generation exists."""
        outcome = may_publish(generation, self._generation_paths())
        if isinstance(outcome, RetireOvertaken):
            raise Retired(f"generation {generation} was overtaken by generation {outcome.by}")

    def _generation_paths(self) -> tuple[str, ...]:
        return tuple(each.path for each in self.store.list(self.paths.generations))

    def _identity(self, paths: Iterable[str]) -> JobIdentity:
        """The job's identity, from its newest readable generation; made anew only for a job
        without any state.
        """
        newer: NewerFormat | None = None
        for path in sorted(paths, reverse=True):
            try:
                return decode(GenerationRecord, self.store.read(path), path).job
            except DamagedState:
                continue
            except NewerFormat as error:
                if error.intact:
                    raise
                newer = newer or error
        if newer is not None:
            raise newer
        if self.store.list(self.paths.epochs):
            raise IdentityMissing(
                f"{self.store.url}/{self.paths.job} has checkpoints, but no record of whose they are",
                hint=f"bring back {self.paths.generations}/ from a copy; without it sinks could double their output",
            )
        return new_identity()

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
        epochs = epochs_seen(each.path for each in self.store.list(self.paths.epochs))
        sizes = (
            {each.path: each.size for each in self.store.list(self.paths.tables)} if epochs else {}
        )
        fallbacks: list[Fallback] = []
        condemned: list[CondemnedRecord] = []
        chosen: Checkpoint | None = None
        for objects in reversed(epochs.values()):
            attempt = objects.standing
            if attempt is None:
                reasons = self._known_reasons(objects)
            else:
                verdict = self._validate(objects, attempt, claim.job, sizes, damaged)
                if not isinstance(verdict, tuple):
                    reasons = verdict
                    condemned.append(
                        CondemnedRecord(
                            job=claim.job,
                            epoch=objects.epoch,
                            attempt=attempt,
                            generation=claim.generation,
                            reasons=tuple(reasons),
                        )
                    )
                else:
                    chosen = verdict
                    break
            if reasons:
                fallbacks.append(Fallback(epoch=objects.epoch, reasons=tuple(reasons)))
        if chosen is None and not fallbacks and any(epoch > 1 for epoch in epochs):
            # An epoch is only begun when the one before it is sealed.
            reason = f"epoch {max(epochs)} was begun, but the manifests before it are missing"
            fallbacks.append(Fallback(epoch=Epoch(max(epochs) - 1), reasons=(reason,)))
        if chosen is None and fallbacks:
            raise NoValidCheckpoint(_none_valid(fallbacks), hint=_NONE_VALID_HINT)

        self.require_newest(claim.generation)
        for record in condemned:
            self.store.create(self.paths.condemned(record.epoch, record.attempt), record.encode())
            epochs[record.epoch].condemned[record.attempt] = ""
        epoch = chosen[0].epoch if chosen else NO_EPOCH
        return LoadPlan(
            job=claim.job,
            generation=claim.generation,
            parallelism=parallelism,
            epoch=epoch,
            manifest=chosen[0] if chosen else None,
            operators={
                operator: operator_load(metadata, parallelism)
                for operator, metadata in (chosen[1] if chosen else {}).items()
            },
            commit_pending=chosen is not None and epochs[epoch].committed is None,
            recorded={
                each.epoch: found
                for each in epochs.values()
                if each.epoch > epoch and (found := self._recorded(each, claim.job))
            },
            fallbacks=tuple(fallbacks),
        )

    def read_checkpoint(self, manifest_path: str) -> Checkpoint:
        """A manifest and all it names; raises DamagedState or ObjectMissing."""
        manifest = decode(Manifest, self.store.read(manifest_path), manifest_path)
        return manifest, {
            operator: self._metadata(manifest, operator) for operator in manifest.operators
        }

    def _metadata(self, manifest: Manifest, operator: OperatorId) -> OperatorCheckpointMetadata:
        expected = manifest.operators[operator]
        data = self.store.read(expected.path)
        if hashlib.sha256(data).hexdigest() != expected.sha256:
            raise DamagedState(
                f"the metadata of {operator} does not match its digest ({expected.path})",
                path=expected.path,
            )
        return decode(OperatorCheckpointMetadata, data, expected.path)

    def _validate(
        self,
        objects: EpochObjects,
        attempt: int,
        job: JobIdentity,
        sizes: Mapping[str, int],
        damaged: frozenset[str],
    ) -> Checkpoint | list[str]:
        """The checkpoint, if it is whole; else the reasons why not."""
        try:
            manifest = decode(
                Manifest,
                self.store.read(objects.manifests[attempt]),
                objects.manifests[attempt],
            )
            faults = manifest_faults(manifest, job, objects)
            if faults:
                return faults
            operators = {
                operator: self._metadata(manifest, operator) for operator in manifest.operators
            }
        except UNUSABLE as error:
            return [error.message]
        faults = [
            fault
            for metadata in operators.values()
            for fault in metadata_faults(metadata, manifest, sizes, damaged)
        ]
        return faults or (manifest, operators)

    def _known_reasons(self, objects: EpochObjects) -> list[str]:
        """Why an epoch without a standing manifest cannot be used; empty if it was never sealed."""
        reasons = [lost] if (lost := lost_seal(objects)) else []
        for path in objects.condemned.values():
            try:
                reasons.extend(decode(CondemnedRecord, self.store.read(path), path).reasons)
            except UNUSABLE as error:
                reasons.append(error.message)
        return reasons

    def _recorded(self, objects: EpochObjects, job: JobIdentity) -> RecordedEpoch | None:
        """What an epoch read, from whichever of its records still says so."""
        inputs: dict[OperatorId, InputRange] = {}
        whole = False
        for path in (
            *([objects.committed] if objects.committed else []),
            *objects.manifests.values(),
        ):
            kind: type[CommittedRecord] | type[Manifest] = (
                CommittedRecord if path == objects.committed else Manifest
            )
            try:
                record = decode(kind, self.store.read(path), path)
            except UNUSABLE:
                continue
            if (record.job, record.epoch) == (job, objects.epoch):
                inputs, whole = dict(record.inputs), True
                break
        if not whole:
            inputs = self._inputs_of_sources(objects, job)
        was_sealed = bool(objects.manifests or objects.condemned or objects.committed)
        if not inputs and was_sealed:
            raise NoValidCheckpoint(
                f"epoch {objects.epoch} must be replayed, but no record of its input can be read",
                hint=f"bring back {self.paths.epoch(objects.epoch)}/ from a copy",
            )
        if not inputs:
            return None
        return RecordedEpoch(
            inputs=inputs,
            sealed=was_sealed,
            committed=objects.committed is not None,
            attempt=objects.next_attempt,
        )

    def _inputs_of_sources(
        self, objects: EpochObjects, job: JobIdentity
    ) -> dict[OperatorId, InputRange]:
        """What the sources' own metadata says. Older generations may have begun the epoch over
        other input without sealing it, so the newest one counts.
        """
        newest: dict[OperatorId, OperatorCheckpointMetadata] = {}
        for path in objects.operators:
            try:
                metadata = decode(OperatorCheckpointMetadata, self.store.read(path), path)
            except UNUSABLE:
                continue
            if (metadata.job, metadata.epoch) != (job, objects.epoch):
                continue
            known = newest.get(metadata.operator)
            if known is None or known.generation < metadata.generation:
                newest[metadata.operator] = metadata
        return {
            operator: metadata.input
            for operator, metadata in newest.items()
            if metadata.input is not None
        }

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
            digests[each.operator] = digest_of(path, data)
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


_NONE_VALID_HINT = (
    "nothing was deleted: bring the named objects back from a copy and run again, "
    "or choose another --state-dir or --name to begin from nothing"
)


def _none_valid(fallbacks: Iterable[Fallback]) -> str:
    lines = [f"  epoch {each.epoch}: {reason}" for each in fallbacks for reason in each.reasons]
    return "there are checkpoints, but none can be used:\n" + "\n".join(lines)
