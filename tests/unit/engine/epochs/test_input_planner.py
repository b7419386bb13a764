"""Which replays the sources of a job read, and what a recorded epoch reads; without Spark."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from tests.unit.engine.epochs.test_sink_agreement import JOB, plan

from resurgence.config import Settings
from resurgence.engine.epochs.input_planner import InputPlanner
from resurgence.engine.epochs.pipeline import Pipeline
from resurgence.errors import SourceRangeGone
from resurgence.ids import Epoch, JobName, OperatorId
from resurgence.state.load_plan import LoadPlan
from resurgence.state.paths import JobPaths
from resurgence.state.protocol.decisions import RecordedEpoch
from resurgence.state.records import InputRange, RecordPosition, Replay
from resurgence.state.replays import REPLAY_SCHEMA, Replays
from resurgence.storage.object_store import ObjectStore

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SOURCE = OperatorId("source-in")


def planner_of(load: LoadPlan, *, requests: int = 0, replayed: int = 0) -> tuple[InputPlanner, Any]:
    """The planner of a job with one source, whose dead letters have requests; and that source."""
    replays = Replays(ObjectStore("memory://"), JobPaths(JobName("rides")))
    row = {"epoch": 1, "partition": "a", "offset": 3, "raw": b"{}"}
    for after in range(requests):
        replays.add(JOB, SOURCE, pa.Table.from_pylist([row], REPLAY_SCHEMA), NOW, after)
    source = SimpleNamespace(replayed=replayed)
    pipeline = SimpleNamespace(
        graph=SimpleNamespace(sources=tuple), sources={}, source_operators={SOURCE: source}
    )
    made = InputPlanner(cast(Pipeline, pipeline), load, Settings(), replays, has_letters=True)
    made.look_for_replays(NOW)
    return made, source


def replaying(number: int | None) -> dict[OperatorId, InputRange]:
    replay = None if number is None else Replay(number=number, rows=1)
    return {SOURCE: InputRange(start={}, end={}, rows=0, replay=replay)}


def test_an_epoch_is_not_the_last_while_requests_wait() -> None:
    planner, _ = planner_of(plan(5), requests=2)
    assert planner.has_more_replays(replaying(None))
    assert planner.has_more_replays(replaying(1))
    assert not planner.has_more_replays(replaying(2))
    planner, _ = planner_of(plan(5), requests=2, replayed=2)
    assert not planner.has_more_replays(replaying(None))


def test_a_source_that_is_not_restored_does_not_read_old_requests() -> None:
    planner, source = planner_of(plan(5), requests=2)
    planner.skip_replays({SOURCE})
    assert source.replayed == 0
    assert planner.next_replays() == {SOURCE: Replay(number=1, rows=1)}
    planner.skip_replays(set())
    assert source.replayed == 2
    assert planner.next_replays() == {}


@pytest.mark.parametrize("sealed", [True, False])
def test_only_a_sealed_epoch_leaves_out_the_records_that_it_has_left_out(sealed: bool) -> None:
    position = RecordPosition(partition="a", offset=3)
    whole = InputRange(start={"line": 0}, end={"line": 9}, rows=9)
    recorded = RecordedEpoch(
        inputs={SOURCE: whole.model_copy(update={"excluded": (position,)})},
        sealed=sealed,
        committed=False,
        attempt=0,
    )
    load = plan(5).model_copy(update={"recorded": {Epoch(6): recorded}})
    planner, _ = planner_of(load)
    planner._offsets = {SOURCE: whole.start}
    found = planner.next(Epoch(6), Epoch(5), NOW, 0, lambda _time: False)
    assert found == (recorded.inputs if sealed else {SOURCE: whole})


@pytest.mark.parametrize("sealed", [True, False])
def test_an_unsealed_epoch_whose_input_is_gone_is_planned_anew(sealed: bool) -> None:
    gone = InputRange(start={"next": 0}, end={"next": 9}, rows=9)
    rest = InputRange(start={"next": 0}, end={"next": 5}, rows=0, skipped_rows=5)
    recorded = RecordedEpoch(inputs={SOURCE: gone}, sealed=sealed, committed=False, attempt=0)
    planner, _ = planner_of(plan(5).model_copy(update={"recorded": {Epoch(6): recorded}}))
    planner._offsets = {SOURCE: gone.start}
    source = SimpleNamespace(
        holds=lambda each: each != gone,
        plan=lambda *_: rest,
        partitions=lambda _: (),
        unread=dict,
    )
    planner._pipeline.sources[SOURCE] = cast(Any, source)
    found = planner.next(Epoch(6), Epoch(5), NOW, 0, lambda _time: False)
    assert found is not None
    # What a sealed epoch has read may be visible, so its loss is an error when it is read.
    assert found[SOURCE] == (gone if sealed else rest.model_copy(update={"planned_at": NOW}))


@pytest.mark.parametrize(
    ("sealed", "exact", "before", "now", "fails"),
    [
        (True, False, 9, 9, False),
        (True, False, 9, 7, True),
        (True, False, 9, 18, False),
        (True, False, None, 7, False),
        (True, True, 9, 7, False),
        (False, False, 9, 7, False),
    ],
)
def test_a_replay_that_reads_fewer_rows_than_the_sealed_epoch_is_refused(
    sealed: bool, exact: bool, before: int | None, now: int, fails: bool
) -> None:
    rows_in = {} if before is None else {SOURCE: before}
    recorded = RecordedEpoch(inputs={}, rows_in=rows_in, sealed=sealed, committed=False, attempt=0)
    planner, _ = planner_of(plan(5).model_copy(update={"recorded": {Epoch(6): recorded}}))
    planner._pipeline.sources[SOURCE] = cast(Any, SimpleNamespace(counts_exactly=exact))
    refused = pytest.raises(SourceRangeGone, match="only 7 of the 9 rows that epoch 6 has")
    with refused if fails else nullcontext():
        planner.require_no_fewer_rows(Epoch(6), {SOURCE: now})
    planner.require_no_fewer_rows(Epoch(7), {SOURCE: now})
