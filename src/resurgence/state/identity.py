"""The identity of the job in a state dir: a majority vote of the newest generations and manifests.

A record of another job, copied there by mistake, is outvoted by the others. If they disagree, only
manifests vote that no metadata of theirs contradicts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from resurgence.errors import DamagedState, IdentityMissing, NewerFormat
from resurgence.ids import Epoch, JobIdentity
from resurgence.state.paths import JobPaths
from resurgence.state.protocol.decisions import EpochObjects, prevailing_identity
from resurgence.state.records import (
    UNUSABLE,
    GenerationRecord,
    Manifest,
    OperatorCheckpointMetadata,
    decode,
)
from resurgence.storage.object_store import ObjectStore

_VOTERS = 3
"""Number of generations, and of manifests, that vote."""


def find_identity(
    store: ObjectStore,
    paths: JobPaths,
    generations: Iterable[str],
    epochs: Mapping[Epoch, EpochObjects],
) -> tuple[JobIdentity, int | None] | None:
    """Return the job, and the newest rollback that its generations know of; None only if there is
    no state at all.
    """
    records: list[GenerationRecord] = []
    newer: NewerFormat | None = None
    for path in sorted(generations, reverse=True):
        try:
            records.append(decode(GenerationRecord, store.read(path), path))
        except DamagedState:
            continue
        except NewerFormat as error:
            if error.intact and not records:
                raise
            newer = newer or error
        if len(records) == _VOTERS:
            break
    if records:
        sealed, claimed = _newest_manifests(store, epochs), [each.job for each in records]
        if {each.job for each in sealed} != set(claimed):
            sealed = [each for each in sealed if not _is_contradicted(store, each)]
        # The manifests win a tie, because a restore reads them.
        job = prevailing_identity([*(each.job for each in sealed), *claimed])
        known = [each.rollback for each in records if each.job == job]
        return job, known[0] if known else None
    if newer is not None:
        raise newer
    if epochs:
        raise identity_missing(store, paths)
    return None


def identity_missing(store: ObjectStore, paths: JobPaths) -> IdentityMissing:
    """Return the error for checkpoints without a record of the job's identity."""
    return IdentityMissing(
        f"{store.url}/{paths.job} has checkpoints, but no record of the job that they belong to",
        hint=f"Restore {paths.generations}/ from a backup, or sinks could duplicate their output.",
    )


def _newest_manifests(store: ObjectStore, epochs: Mapping[Epoch, EpochObjects]) -> list[Manifest]:
    found: list[Manifest] = []
    newest_first = (epochs[each] for each in sorted(epochs, reverse=True))
    for path in (path for each in newest_first for path in each.manifests.values()):
        if len(found) == _VOTERS:
            break
        with contextlib.suppress(*UNUSABLE):
            found.append(decode(Manifest, store.read(path), path))
    return found


def _is_contradicted(store: ObjectStore, manifest: Manifest) -> bool:
    """Return whether metadata that a manifest names belongs to another job. Such a manifest was
    copied there, and does not vote.
    """
    for named in manifest.operators.values():
        with contextlib.suppress(*UNUSABLE):
            return (
                decode(OperatorCheckpointMetadata, store.read(named.path), named.path).job
                != manifest.job
            )
    return False
