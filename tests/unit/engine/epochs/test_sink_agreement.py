"""The records of a sink compared with those of the state."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from resurgence.connectors.contract import CoveredInput, SinkMemory
from resurgence.engine.epochs.sink_agreement import recorded_inputs, require_agreement
from resurgence.errors import RetryHint, SinkConflict
from resurgence.ids import Epoch, Generation, JobIdentity, OperatorId
from resurgence.state.load_plan import LoadPlan
from resurgence.state.protocol.decisions import RecordedEpoch
from resurgence.state.records import (
    EpochCounts,
    InputRange,
    Manifest,
    Totals,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
JOB = JobIdentity("a1b2c3d4e5f6")
Inputs = dict[OperatorId, InputRange]


def inputs(epoch: int, rows: int = 10) -> Inputs:
    """What an epoch reads, if all have so many rows."""
    start, end = (epoch - 1) * rows, epoch * rows
    return {
        OperatorId("source-in"): InputRange(start={"line": start}, end={"line": end}, rows=rows)
    }


def covered(epoch: int, rows: int = 10) -> CoveredInput:
    return CoveredInput.of(inputs(epoch, rows))


def plan(restored: int, *recorded: int, dead: tuple[tuple[int, int], ...] = ()) -> LoadPlan:
    """A load plan with epochs on record after the restored one."""
    manifest = Manifest(
        job=JOB,
        epoch=Epoch(restored),
        attempt=0,
        generation=Generation(1),
        parent=Epoch(restored - 1),
        operators={},
        inputs=inputs(restored),
        totals=Totals(since=Epoch(1), counts=EpochCounts()),
        began_at=NOW,
        sealed_at=NOW,
    )
    return LoadPlan(
        job=JOB,
        generation=Generation(2),
        parallelism=1,
        epoch=Epoch(restored),
        manifest=manifest if restored else None,
        recorded={
            Epoch(each): RecordedEpoch(inputs=inputs(each), sealed=True, committed=True, attempt=1)
            for each in recorded
        },
        dead=tuple((Epoch(first), Epoch(last)) for first, last in dead),
    )


def memory(
    newest: int, retracted: tuple[tuple[int, int], ...] = (), **other_rows: int
) -> SinkMemory:
    """What a sink recalls that has committed all epochs up to one, by default over `inputs`."""
    return SinkMemory(
        newest=Epoch(newest),
        inputs={
            Epoch(each): covered(each, other_rows.get(f"epoch_{each}", 10))
            for each in range(1, newest + 1)
        },
        retracted=tuple((Epoch(first), Epoch(last)) for first, last in retracted),
    )


@pytest.mark.parametrize(
    ("given", "held"),
    [
        pytest.param(plan(0), SinkMemory(), id="nothing was ever run"),
        pytest.param(plan(5), memory(5), id="both at the same epoch"),
        pytest.param(plan(5), memory(3), id="no output for a while"),
        pytest.param(plan(5), SinkMemory(newest=Epoch(5)), id="records of an older release"),
        pytest.param(plan(3, 4, 5), memory(5), id="a fallback"),
        pytest.param(plan(0, 1), memory(1), id="a fallback to nothing"),
        pytest.param(plan(3, dead=((4, 9),)), memory(9), id="rolled back, not retracted yet"),
        pytest.param(plan(3, dead=((4, 9),)), memory(9, ((4, 9),)), id="rolled back"),
        pytest.param(plan(3, dead=((3, 9),)), memory(9, ((4, 9),)), id="rolled back twice"),
        pytest.param(plan(11, dead=((4, 9),)), memory(11, ((4, 9),)), id="on after a rollback"),
    ],
)
def test_a_sink_that_holds_what_is_on_record_is_accepted(given: LoadPlan, held: SinkMemory) -> None:
    asked = {epoch: each for epoch, each in held.inputs.items() if epoch in recorded_inputs(given)}
    require_agreement("out", given, SinkMemory(held.newest, asked, held.retracted))


@pytest.mark.parametrize(
    ("given", "held", "message", "target"),
    [
        pytest.param(plan(0), memory(4), "holds epochs 1 to 4", "0`", id="an empty state"),
        pytest.param(plan(5), memory(6), "holds epoch 6, but", "5`", id="one epoch behind"),
        pytest.param(
            plan(3, 4, 5), memory(9), "holds epochs 6 to 9", "3`", id="a fallback and behind"
        ),
        pytest.param(
            plan(5),
            SinkMemory(newest=Epoch(8)),
            "holds epochs 6 to 8",
            "5`",
            id="records of an older release",
        ),
        pytest.param(
            plan(5, dead=((6, 7),)), memory(9), "holds epochs 8 to 9", "5`", id="behind a rollback"
        ),
        pytest.param(
            plan(3, 4, 5),
            memory(5, epoch_4=15, epoch_5=15),
            "holds epochs 4 to 5 over other input",
            "3`",
            id="recorded over other input",
        ),
        pytest.param(
            plan(5),
            memory(5, epoch_5=15),
            "holds epoch 5 over other input",
            "N` with an epoch N before",
            id="restored over other input",
        ),
        pytest.param(
            plan(5),
            memory(5, ((4, 5),)),
            "has retracted epochs 4 to 5",
            "N` with an epoch N before",
            id="a rollback that the state does not know",
        ),
    ],
)
def test_a_sink_that_holds_anything_else_is_refused(
    given: LoadPlan, held: SinkMemory, message: str, target: str
) -> None:
    asked = {epoch: each for epoch, each in held.inputs.items() if epoch in recorded_inputs(given)}
    with pytest.raises(SinkConflict, match=f"sink 'out' {message}") as raised:
        require_agreement("out", given, SinkMemory(held.newest, asked, held.retracted))
    assert f"`resurgence rollback --to-epoch {target}" in raised.value.hint
    assert raised.value.retry_hint is RetryHint.NO_RETRY


def test_planning_time_and_flags_do_not_identify_input() -> None:
    changed = {
        name: each.model_copy(update={"planned_at": NOW, "final": True, "idle": True})
        for name, each in inputs(3).items()
    }
    assert CoveredInput.of(changed) == covered(3)
