"""Plans the input of each epoch: a range of every source, and the dead letters to replay.

Holds what the next plan depends on: the offset of each source, which sources have ended, and which
partitions are idle. It changes when an epoch is sealed, and not before. A recorded epoch is not
planned: it replays its recorded input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from resurgence.config import Settings
from resurgence.connectors.contract import Source
from resurgence.engine.epochs.idleness import Idleness
from resurgence.engine.epochs.pipeline import Pipeline
from resurgence.engine.functions.planning_time import instant, micros
from resurgence.errors import IncompatibleState, SourceRangeGone
from resurgence.ids import Epoch, OperatorId
from resurgence.state.load_plan import LoadPlan
from resurgence.state.records import OFFSETS, InputRange, Offset, Replay, ReplayRequest
from resurgence.state.replays import Replays, next_replay

_LOOK_FOR_REPLAYS = timedelta(seconds=5)

Inputs = dict[OperatorId, InputRange]


class InputPlanner:
    """The input of a job, as far as it is sealed, and what comes next."""

    def __init__(
        self,
        pipeline: Pipeline,
        plan: LoadPlan,
        settings: Settings,
        replays: Replays,
        *,
        has_letters: bool,
    ) -> None:
        """`has_letters`: the job can have dead letters."""
        self._pipeline = pipeline
        self._plan = plan
        self._settings = settings
        self._offsets: dict[OperatorId, Offset] = {}
        self._exhausted: set[OperatorId] = set()
        self._idleness = Idleness(pipeline.graph.sources())
        self._idle_partitions: dict[OperatorId, frozenset[str]] = {}
        """Of each source, as recorded by the newest sealed epoch."""
        self._replays = replays
        self._has_letters = has_letters
        self._replay_requests: dict[OperatorId, list[ReplayRequest]] = {}
        self._replays_looked_at: datetime | None = None
        self._epoch_began_at: datetime | None = None

    @property
    def sources(self) -> set[OperatorId]:
        return {*self._offsets}

    def has_ended(self) -> bool:
        """Return whether every source has ended."""
        return self._exhausted.issuperset(self._offsets)

    def restore(self, restorable: set[OperatorId], now: datetime) -> None:
        """Restore the offsets of sources from the load plan; others begin anew."""
        for operator_id, source in self._pipeline.sources.items():
            if operator_id not in restorable:
                self._offsets[operator_id] = self._first_offset(operator_id, source, now)
                continue
            load = self._plan.operators[operator_id]
            self._offsets[operator_id] = dict(load.metadata.tables[OFFSETS].values)
            if (recorded := load.metadata.input) is not None:
                self._idle_partitions[operator_id] = frozenset(recorded.idle_partitions)
                if recorded.final:
                    self._exhausted.add(operator_id)

    def _first_offset(self, operator_id: OperatorId, source: Source, now: datetime) -> Offset:
        """Return the start of a source that the checkpoint does not contain: its recorded start, if
        the next epoch is on record.
        """
        recorded = self._plan.recorded.get(self._plan.after(self._plan.epoch))
        if recorded is not None and operator_id in recorded.inputs:
            return recorded.inputs[operator_id].start
        return source.first_offset(now, self._plan.parallelism)

    def next(
        self,
        epoch: Epoch,
        after: Epoch,
        now: datetime,
        time: int,
        is_window_due: Callable[[int], bool],
    ) -> Inputs | None:
        """Return the input range of each source, or None to wait. `after` is the newest sealed
        epoch, planned at `time`, in microseconds.
        """
        recorded = self._plan.recorded.get(epoch)
        if recorded is not None:
            starts = {operator_id: each.start for operator_id, each in recorded.inputs.items()}
            if starts == self._offsets and recorded.sealed:
                return dict(recorded.inputs)
            if starts == self._offsets and self._is_held(recorded.inputs):
                # Nothing of it is visible. The records that it fails on are found again, with the
                # reasons, which are not on record.
                return {
                    operator_id: each.model_copy(update={"excluded": ()})
                    for operator_id, each in recorded.inputs.items()
                }
            if recorded.sealed:
                raise IncompatibleState(
                    f"the recorded input of epoch {epoch} does not start where the input of epoch "
                    f"{after} ends",
                    hint="Undo edits to the list of sources, or start with another --name.",
                )
        planned = {
            operator_id: source.plan(
                self._offsets[operator_id], self._settings.pipeline.epoch_rows, now
            )
            for operator_id, source in self._pipeline.sources.items()
            if operator_id not in self._exhausted
        }
        self.look_for_replays(now)
        replays = self.next_replays()
        inputs = {
            operator_id: self._with_idleness(operator_id, planned.get(operator_id), now)
            for operator_id in self._offsets
        }
        if not (self._is_full(planned) or self._is_due(now)):
            return None
        # Planning time never goes backwards, even if a machine with another clock takes over.
        planned_at = max(now, instant(time))
        has_input = any(each is not None for each in planned.values()) or bool(replays)
        if not (has_input or self._has_newly_idle(inputs) or is_window_due(micros(planned_at))):
            return None
        return {
            operator_id: each.model_copy(
                update={"planned_at": planned_at, "replay": replays.get(operator_id)}
            )
            for operator_id, each in inputs.items()
        }

    def _is_held(self, inputs: Inputs) -> bool:
        """Return whether the sources still hold the input of an epoch that was never sealed. If
        not, the next plan is the place to report the loss, or to skip it if the user allows that.
        """
        return all(
            source.holds(inputs[operator_id])
            for operator_id, source in self._pipeline.sources.items()
            if operator_id in inputs
        )

    def require_no_fewer_rows(self, epoch: Epoch, rows_in: Mapping[OperatorId, int]) -> None:
        """Raise SourceRangeGone if an epoch that was sealed before has read fewer rows this time. A
        source that does not count exactly may lose records within a range without notice, as a
        compacted topic does.
        """
        recorded = self._plan.recorded.get(epoch)
        if recorded is None or not recorded.sealed:
            return
        for operator_id, source in self._pipeline.sources.items():
            before, now = recorded.rows_in.get(operator_id), rows_in.get(operator_id)
            if not source.counts_exactly and before is not None and (now or 0) < before:
                raise SourceRangeGone(
                    f"'{operator_id}' has only {now or 0} of the {before} rows that epoch {epoch}"
                    " has read before",
                    hint="Start a new job with another --name. The input of the epoch has changed,"
                    " for example by compaction, and its results may be visible already.",
                )

    def begin(self, inputs: Inputs, now: datetime) -> None:
        """Take note that an epoch over some input begins."""
        self._epoch_began_at = now
        for operator_id, each in inputs.items():
            if each.rows:
                self._idleness.note_rows(operator_id, now)

    def promote(self, inputs: Inputs) -> None:
        """Make the input of a sealed epoch the current state."""
        self._offsets = {operator_id: each.end for operator_id, each in inputs.items()}
        self._exhausted = {operator_id for operator_id, each in inputs.items() if each.final}
        self._idle_partitions = {
            operator_id: frozenset(each.idle_partitions) for operator_id, each in inputs.items()
        }

    def _is_full(self, planned: Mapping[OperatorId, InputRange | None]) -> bool:
        """Return whether an epoch must not wait for more rows."""
        most_rows = self._settings.pipeline.epoch_rows
        return any(
            each.rows >= most_rows
            or each.final
            # Without rows it is a change of the source's partitions, which rows may depend on.
            or (not each.rows and each.end != each.start)
            or (each.rows and self._pipeline.sources[operator_id].unread())
            for operator_id, each in planned.items()
            if each is not None
        )

    def _is_due(self, now: datetime) -> bool:
        """Return whether the previous epoch began long enough ago."""
        interval = self._settings.pipeline.epoch_interval
        return self._epoch_began_at is None or now - self._epoch_began_at >= interval

    def _has_newly_idle(self, inputs: Inputs) -> bool:
        return any(
            not self._idle_partitions.get(operator_id, frozenset()).issuperset(each.idle_partitions)
            for operator_id, each in inputs.items()
        )

    def _with_idleness(
        self, operator_id: OperatorId, planned: InputRange | None, now: datetime
    ) -> InputRange:
        """Return the range of a source, which is empty if it has none, with its idleness."""
        source, offset = self._pipeline.sources[operator_id], self._offsets[operator_id]
        is_final = operator_id in self._exhausted
        found = planned or InputRange(start=offset, end=offset, rows=0, final=is_final)
        partitions = source.partitions(found)
        idle = self._idleness.idle_partitions(operator_id, partitions, source.unread(), now)
        is_idle = not found.rows and self._idleness.is_idle(operator_id, now)
        return found.model_copy(update={"idle": is_idle, "idle_partitions": idle})

    # ---------------------------------------------------------------- dead letters

    def look_for_replays(self, now: datetime) -> None:
        """Look for requests to replay dead letters: when the job is restored, and every few seconds
        if the pipeline can have dead letters.
        """
        if self._replays_looked_at is not None and (
            not self._has_letters or now - self._replays_looked_at < _LOOK_FOR_REPLAYS
        ):
            return
        self._replays_looked_at = now
        self._replay_requests = self._replays.listed(self._plan.job)

    def next_replays(self) -> dict[OperatorId, Replay]:
        """Return the replay that each source has to read next, if there is one."""
        found = {
            operator_id: next_replay(
                self._replay_requests.get(operator_id, ()), each.replayed, self._plan.dead
            )
            for operator_id, each in self._pipeline.source_operators.items()
        }
        return {operator_id: each for operator_id, each in found.items() if each is not None}

    def has_more_replays(self, inputs: Inputs) -> bool:
        """Return whether a source has to read a replay after the epoch with this input."""
        return any(
            next_replay(
                self._replay_requests.get(operator_id, ()),
                replay.number if (replay := inputs[operator_id].replay) else each.replayed,
                self._plan.dead,
            )
            for operator_id, each in self._pipeline.source_operators.items()
        )

    def skip_replays(self, restorable: set[OperatorId]) -> None:
        """Skip the requests so far of sources that are not restored: they begin anew, and read the
        records of these dead letters with their ranges.
        """
        if self._plan.manifest is None:
            return
        for operator_id, each in self._pipeline.source_operators.items():
            if operator_id not in restorable:
                requests = self._replay_requests.get(operator_id, ())
                each.replayed = max((request.number for request in requests), default=0)
