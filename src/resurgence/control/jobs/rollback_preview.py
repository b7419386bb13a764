"""The preview of a rollback: which epochs it undoes, what each sink does about them, and from which
position each source is replayed. Read-only; `StateBackend.record_rollback` does the rollback
itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from resurgence.connectors.registry import make_sink, newest_held
from resurgence.errors import UserError
from resurgence.graph.model import Graph
from resurgence.ids import NO_EPOCH, NO_GENERATION, Epoch, OperatorId
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.checkpoints import (
    CheckpointStatus,
    CheckpointView,
    kept_checkpoints,
    of_each_epoch,
)
from resurgence.state.protocol.decisions import EpochRange, dead_ranges, is_dead
from resurgence.state.records import EpochCounts, Offset


class RollbackRefused(UserError):
    """The job cannot be rolled back to that epoch, or not without duplicates."""

    code = "rollback.refused"


@dataclass(frozen=True)
class SinkOutcome:
    """What a sink does with the rows that it committed after the checkpoint."""

    table: str
    rows: int
    retracts: bool
    """False: it does not retract them, and the replay writes them a second time."""


@dataclass(frozen=True)
class SourcePosition:
    """The position from which a source is replayed."""

    operator: OperatorId
    offset: Offset | None
    """None: the beginning."""
    rows: int
    """Rows after it that were already read."""


@dataclass(frozen=True)
class RollbackPreview:
    """The effects of a rollback."""

    to_epoch: Epoch
    undone: EpochRange | None
    """The first and the last sealed epoch that are undone."""
    held: Epoch | None
    """The last epoch that only sinks have recorded, because the state is an older copy. These epochs
    are retracted, too.
    """
    sinks: tuple[SinkOutcome, ...]
    sources: tuple[SourcePosition, ...]

    @property
    def rows(self) -> int:
        """The number of output rows that are undone."""
        return sum(each.rows for each in self.sinks)

    def require_no_duplicates(self) -> None:
        """Raise RollbackRefused if a sink would receive rows a second time."""
        blocking = [each.table for each in self.sinks if not each.retracts]
        if blocking:
            raise RollbackRefused(
                f"{', '.join(blocking)} cannot retract committed output, such as messages in Kafka,"
                " or is not in the pipeline: readers would see its rows twice",
                hint="Accept duplicate rows with --accept-duplicates "
                "(accept_duplicates in a request).",
            )


def held_by_sinks(backend: StateBackend, graph: Graph) -> Epoch:
    """Return the newest epoch that the sinks of a job hold; 0 if it was never started."""
    if backend.newest_generation() == NO_GENERATION:
        return NO_EPOCH
    identity, _ = backend.identity()
    return newest_held(graph, backend.store.url, backend.paths.job, identity)


def preview_rollback(
    backend: StateBackend, graph: Graph, to_epoch: Epoch, held: Epoch
) -> RollbackPreview:
    """Return the effects of a rollback to an epoch, where 0 is the beginning; `held` is the newest
    epoch that the sinks hold. Raise RollbackRefused if the former has no usable checkpoint.
    """
    views = of_each_epoch(kept_checkpoints(backend))
    usable = [epoch for epoch, view in views.items() if view.status is CheckpointStatus.VALID]
    if to_epoch not in (NO_EPOCH, *usable):
        others = f"one of {', '.join(map(str, usable))}, or " if usable else ""
        raise RollbackRefused(
            f"cannot roll back to epoch {to_epoch}: it has no usable checkpoint",
            hint=f"Choose {others}0 for the beginning.",
        )
    target = views.get(to_epoch)
    undone = [
        view
        for view in views.values()
        if view.epoch > to_epoch and view.status is not CheckpointStatus.DEAD
    ]
    counts = _counts_after(target, undone)
    known = undone[-1].epoch if undone else to_epoch
    is_unknown = held > known and not is_dead(held, dead_ranges(backend.rollbacks()))
    return RollbackPreview(
        to_epoch=to_epoch,
        undone=(_first_after(target, undone), undone[-1].epoch) if undone else None,
        held=held if is_unknown else None,
        sinks=_sinks(backend, graph, counts.rows_out),
        sources=_sources(graph, target, counts.rows_in),
    )


def _first_after(target: CheckpointView | None, undone: Sequence[CheckpointView]) -> Epoch:
    """Return the first epoch that is undone. Retention may have thinned out its checkpoint already;
    then the parents of the others do not lead to it.
    """
    parents = [view.manifest.parent for view in undone if view.manifest is not None]
    after = target.epoch if target is not None else NO_EPOCH
    return undone[0].epoch if after in parents else Epoch(after + 1)


def _counts_after(target: CheckpointView | None, undone: Sequence[CheckpointView]) -> EpochCounts:
    """Return the row counts of the epochs after a checkpoint: the difference of the running totals,
    which include epochs whose checkpoints are no longer retained.
    """
    sealed = [view.manifest for view in undone if view.manifest is not None]
    if not sealed:
        return EpochCounts()
    after = sealed[-1].totals.counts
    if target is None or target.manifest is None:
        return after
    return after.minus(target.manifest.totals.counts)


def _sinks(
    backend: StateBackend, graph: Graph, rows: Mapping[OperatorId, int]
) -> tuple[SinkOutcome, ...]:
    known = {each.id: each for each in graph.sinks()}
    found = [
        SinkOutcome(
            each.table,
            rows.get(each.id, 0),
            make_sink(each, backend.store.url, backend.paths.job).retracts,
        )
        for each in known.values()
    ]
    removed = [
        SinkOutcome(operator, count, retracts=False)
        for operator, count in sorted(rows.items())
        if count and operator not in known
    ]
    return (*found, *removed)


def _sources(
    graph: Graph, target: CheckpointView | None, rows: Mapping[OperatorId, int]
) -> tuple[SourcePosition, ...]:
    inputs = target.manifest.inputs if target is not None and target.manifest is not None else {}
    return tuple(
        SourcePosition(
            each.id, inputs[each.id].end if each.id in inputs else None, rows.get(each.id, 0)
        )
        for each in graph.sources()
    )
