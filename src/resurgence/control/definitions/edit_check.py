"""Checks whether an edited pipeline can restore a job's state. The check runs when the edit is
requested, so that a job is never stopped for an edit that does not fit its state.

The column types of expressions are not known here, because Spark derives them. Operators with the
same text have the same types, unless a Python function that they call returns another type than
before; the worker compares the columns of the state itself, and rejects the restore.
"""

from __future__ import annotations

from resurgence.graph.model import Graph
from resurgence.ids import NO_EPOCH, Epoch
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.checkpoints import newest_checkpoint
from resurgence.state.inspection.edits import (
    ACCEPT_FLAG,
    OperatorFate,
    fates,
    fates_while_running,
    require_kept,
)

_HINT = (
    "Undo the part of the edit that loses state, create another job for it, or accept the loss "
    f"with {ACCEPT_FLAG} (setting checkpoint.accept_state_loss)."
)


def require_state_kept(
    backend: StateBackend, edited: Graph, running: Graph | None, parallelism: int
) -> None:
    """Raise IncompatibleState, with the outcome for every operator, if the edit would lose state.
    `running` is the pipeline that the job runs; None if it is stopped. Reads storage.
    """
    epoch, judged = fates_of_edit(backend, edited, running, parallelism)
    require_kept(judged, epoch, accept_loss=False, hint=_HINT)


def fates_of_edit(
    backend: StateBackend, edited: Graph, running: Graph | None, parallelism: int
) -> tuple[Epoch, tuple[OperatorFate, ...]]:
    """Return what an edit does with the state of every operator, and the epoch of that state; 0 if
    there is none.
    """
    newest = newest_checkpoint(backend)
    stored = newest.operators if newest is not None else {}
    if running is not None:
        judged = fates_while_running(edited, running, stored, parallelism)
    else:
        pending = newest is not None and not newest.is_committed
        judged = fates(edited, stored, parallelism, commit_pending=pending)
    return newest.epoch if newest is not None else NO_EPOCH, judged
