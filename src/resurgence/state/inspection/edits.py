"""The effect of an edited pipeline on each operator's state. Pure.

Operators are matched by id. The id of a source or sink is that of its table, and its connector must
be the same; the id of any other operator is a digest of everything that it reads, groups and
computes. So state that an edit does not affect is retained, and an operator never reads state that
it would interpret differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from resurgence.errors import IncompatibleState
from resurgence.graph.model import Graph
from resurgence.graph.specs import OperatorSpec
from resurgence.graph.specs.sink import SinkSpec
from resurgence.graph.specs.source import SourceSpec
from resurgence.ids import Epoch, OperatorId
from resurgence.state.load_plan import LoadPlan
from resurgence.state.records import STAGED, OperatorCheckpointMetadata

ACCEPT_FLAG = "--accept-state-loss"


class Fate(StrEnum):
    """What a restore does with an operator's state."""

    KEEP = "keep"
    MIGRATE = "migrate"
    DROP = "drop"
    REBUILD = "rebuild"


@dataclass(frozen=True)
class OperatorFate:
    """What happens to the state of one operator, and why. `loses`: something that cannot be
    recreated is lost.
    """

    operator: OperatorId
    fate: Fate
    reason: str
    loses: bool = False


def fates(
    graph: Graph,
    stored: Mapping[OperatorId, OperatorCheckpointMetadata],
    parallelism: int,
    *,
    commit_pending: bool,
    schemas: Mapping[OperatorId, str] | None = None,
) -> tuple[OperatorFate, ...]:
    """Return the fate of every operator of a pipeline and of a checkpoint. `schemas`: the state
    columns of windows, if they are already known.
    """
    durable = graph.durable()
    found = []
    for operator in durable:
        metadata = stored.get(operator.id)
        if metadata is None:
            found.append(OperatorFate(operator.id, Fate.REBUILD, _start_text(operator)))
        elif schemas and any(
            table.schema_text != schemas.get(operator.id, table.schema_text)
            for table in metadata.tables.values()
        ):
            reason = "its state has other columns"
            found.append(OperatorFate(operator.id, Fate.REBUILD, reason, loses=True))
        elif moved := _moved(operator, metadata, commit_pending=commit_pending):
            found.append(moved)
        elif metadata.parallelism != parallelism and _rows(metadata):
            reason = (
                f"{_state_text(metadata)}, redistributed to {parallelism} subtasks "
                f"instead of {metadata.parallelism}"
            )
            found.append(OperatorFate(operator.id, Fate.MIGRATE, reason))
        else:
            found.append(OperatorFate(operator.id, Fate.KEEP, _state_text(metadata)))
    remaining = {each.id for each in durable}
    return (
        *found,
        *(
            _dropped(metadata, commit_pending=commit_pending)
            for operator_id, metadata in stored.items()
            if operator_id not in remaining
        ),
    )


def restore_fates(
    graph: Graph, plan: LoadPlan, schemas: Mapping[OperatorId, str] | None = None
) -> tuple[OperatorFate, ...]:
    """Return the fate of every operator if a pipeline resumes with a load plan."""
    return fates(
        graph,
        {operator_id: load.metadata for operator_id, load in plan.operators.items()},
        plan.parallelism,
        commit_pending=plan.commit_pending,
        schemas=schemas,
    )


def fates_while_running(
    edited: Graph,
    running: Graph,
    stored: Mapping[OperatorId, OperatorCheckpointMetadata],
    parallelism: int,
) -> tuple[OperatorFate, ...]:
    """Return the fate of every operator if a running job is edited.

    The job takes and commits another checkpoint before the edit takes effect. Therefore every
    source and stateful operator of the running pipeline counts as having state, whatever the newest
    checkpoint contains: the result must hold for the checkpoint to come.
    """
    judged = {
        each.operator: each for each in fates(edited, stored, parallelism, commit_pending=False)
    }
    durable = {each.id: each for each in edited.durable()}
    for before in running.durable():
        known, after = judged.get(before.id), durable.get(before.id)
        if isinstance(before, SinkSpec) or (known is not None and known.loses):
            continue
        if after is None:
            reason = "not in the pipeline: its state when the edit takes effect would be lost"
            judged[before.id] = OperatorFate(before.id, Fate.DROP, reason, loses=True)
        elif (
            isinstance(before, SourceSpec)
            and isinstance(after, SourceSpec)
            and before.connector != after.connector
        ):
            reason = f"reads {after.place}, but its offset is in {before.place}"
            judged[before.id] = OperatorFate(before.id, Fate.REBUILD, reason, loses=True)
    return tuple(judged.values())


_RUN_HINT = (
    "Undo the edit, choose another --name to start without state, or accept the loss with "
    f"{ACCEPT_FLAG}."
)


def require_kept(
    judged: Iterable[OperatorFate], epoch: Epoch, *, accept_loss: bool, hint: str = _RUN_HINT
) -> None:
    """Raise IncompatibleState if an edit would lose state, unless the loss is accepted."""
    listed = tuple(judged)
    if accept_loss or not any(each.loses for each in listed):
        return
    of_epoch = f" of epoch {epoch}" if epoch else ""
    raise IncompatibleState(
        f"the edited pipeline would lose state{of_epoch}:\n{fate_table(listed)}", hint=hint
    )


def fate_table(judged: Iterable[OperatorFate]) -> str:
    """Format one line per operator."""
    listed = tuple(judged)
    width = max((len(each.operator) for each in listed), default=0)
    return "\n".join(
        f"  {each.operator:{width}}  {each.fate:7}  {each.reason}{' (LOST)' if each.loses else ''}"
        for each in listed
    )


def _start_text(operator: OperatorSpec) -> str:
    if isinstance(operator, SourceSpec):
        return "new: is read from its beginning"
    if isinstance(operator, SinkSpec):
        return "new: receives output from the next epoch on"
    return "new or edited: starts empty with the next epoch"


def _moved(
    operator: OperatorSpec,
    metadata: OperatorCheckpointMetadata,
    *,
    commit_pending: bool,
) -> OperatorFate | None:
    """Return the fate of a source or sink whose location has changed. A file may have been moved
    there; another connector cannot use an offset or staged output.
    """
    before = metadata.place
    if not isinstance(operator, SourceSpec | SinkSpec) or before in (None, operator.place):
        return None
    assert before is not None
    converted = before.split(" ")[0] != operator.connector
    if isinstance(operator, SourceSpec):
        if converted:
            reason = f"reads {operator.place}, but its offset is in {before}"
            return OperatorFate(operator.id, Fate.REBUILD, reason, loses=True)
        reason = f"resumes in {operator.place}, which must have the content of {before}"
        return OperatorFate(operator.id, Fate.KEEP, reason)
    waiting = commit_pending and bool(metadata.tables[STAGED].values.get("files"))
    if waiting and converted:
        reason = (
            f"writes {operator.place}, "
            f"but its output of epoch {metadata.epoch} is staged in {before}"
        )
        return OperatorFate(operator.id, Fate.REBUILD, reason, loses=True)
    reason = f"writes {operator.place}" + (
        f", where the output staged in {before} must have been moved" if waiting else ""
    )
    return OperatorFate(operator.id, Fate.KEEP, reason)


def _dropped(metadata: OperatorCheckpointMetadata, *, commit_pending: bool) -> OperatorFate:
    reason, loses = "has no state", False
    if metadata.input is not None:
        reason, loses = "not in the pipeline: its offset would be lost", True
    elif STAGED in metadata.tables:
        loses = commit_pending and bool(metadata.tables[STAGED].values.get("files"))
        reason = (
            f"not in the pipeline: its output of epoch {metadata.epoch} is not committed yet"
            if loses
            else "not in the pipeline: all its output is committed"
        )
    elif _rows(metadata):
        reason, loses = f"not in the pipeline: {_state_text(metadata)} would be lost", True
    return OperatorFate(metadata.operator, Fate.DROP, reason, loses)


def _rows(metadata: OperatorCheckpointMetadata) -> int:
    return sum(file.rows for table in metadata.tables.values() for file in table.files)


def _state_text(metadata: OperatorCheckpointMetadata) -> str:
    if metadata.input is not None:
        return f"resumes after the {metadata.input.rows:,} rows of epoch {metadata.epoch}"
    if STAGED in metadata.tables:
        return "resumes"
    files = sum(len(table.files) for table in metadata.tables.values())
    return f"{_rows(metadata):,} rows of state in {files} files"
