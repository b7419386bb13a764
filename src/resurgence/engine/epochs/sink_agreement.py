"""Whether a sink and the state of its job agree. Pure.

A state dir that was restored from a backup, or copied, counts its epochs from an older number than
the sink. Sinks skip epochs that they have committed, so the rows of the epochs in between would be
lost, or written twice if epochs are cut differently. A fallback to an older checkpoint is safe: the
state still has a record of every later epoch, with its input, and the replay reads that input
again.

So everything that a sink has committed or retracted must be on record in the state: each epoch at
or above the restored one over the same input, each retraction as a rollback.
"""

from __future__ import annotations

from resurgence.connectors.contract import CoveredInput, SinkMemory
from resurgence.errors import SinkConflict
from resurgence.ids import Epoch
from resurgence.state.load_plan import LoadPlan
from resurgence.state.protocol.decisions import is_dead


def recorded_inputs(plan: LoadPlan) -> dict[Epoch, CoveredInput]:
    """Return the input of the restored epoch and of every later one on record."""
    restored = {plan.epoch: plan.manifest.inputs} if plan.manifest is not None else {}
    later = {epoch: each.inputs for epoch, each in plan.recorded.items()}
    return {epoch: CoveredInput.of(inputs) for epoch, inputs in (restored | later).items()}


def require_agreement(table: str, plan: LoadPlan, held: SinkMemory) -> None:
    """Raise SinkConflict if the sink of a table holds output that the state has no record of.

    `held` is the sink's memory of the epochs in `recorded_inputs`.
    """
    known = recorded_inputs(plan)
    for first, last in held.retracted:
        if not any(start <= first and last <= end for start, end in plan.dead):
            raise SinkConflict(
                f"sink '{table}' has retracted {_span(first, last)}, but the state has no record "
                "of that rollback",
                hint=_hint(_before(plan, first)),
            )
    if (
        held.newest > plan.epoch
        and held.newest not in known
        and not is_dead(held.newest, plan.dead)
    ):
        newest = max((plan.epoch, *known, *(last for _, last in plan.dead)))
        raise SinkConflict(
            f"sink '{table}' holds {_span(Epoch(newest + 1), held.newest)}, but the newest epoch "
            f"that the state has a record of is {newest}",
            hint=_hint(plan.epoch),
        )
    differing = [epoch for epoch, each in held.inputs.items() if each != known.get(epoch, each)]
    if differing:
        first = min(differing)
        raise SinkConflict(
            f"sink '{table}' holds {_span(first, max(differing))} over other input than the state: "
            f"epoch {first} covers {held.inputs[first]}, not {known[first]}",
            hint=_hint(_before(plan, first)),
        )


def _before(plan: LoadPlan, epoch: Epoch) -> Epoch | None:
    """Return the epoch to roll back to in order to retract another one; None if it is not known."""
    return plan.epoch if plan.epoch < epoch else None


def _span(first: Epoch, last: Epoch) -> str:
    return f"epoch {first}" if first >= last else f"epochs {first} to {last}"


def _hint(to_epoch: Epoch | None) -> str:
    target = "N` with an epoch N before them" if to_epoch is None else f"{to_epoch}`"
    return (
        "Check whether the state dir was restored from an older copy. Restore the newest one, or "
        f"retract these epochs with `resurgence rollback --to-epoch {target} and run again, or "
        "start over with another --name and another path for the sink."
    )
