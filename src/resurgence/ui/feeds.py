"""What pages show, one feed for each kind of data, shared by all pages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from resurgence.api.dead_letter_answer import letters_answer
from resurgence.api.log_tail import last_lines
from resurgence.api.models import DeadLetters
from resurgence.control.background import in_thread
from resurgence.control.controller import Controller, JobView, WorkerView
from resurgence.control.jobs.job_record import JobRecord, PipelineRecord
from resurgence.control.store.metadata import StoredEvent
from resurgence.errors import ResurgenceError
from resurgence.graph.model import Graph
from resurgence.ids import JobName
from resurgence.state.inspection.checkpoints import (
    CheckpointView,
    kept_checkpoints,
    newest_checkpoint,
)
from resurgence.state.inspection.dead_letters import LetterFilter
from resurgence.ui.feed import Feed
from resurgence.ui.job_history import JobHistory
from resurgence.ui.views.dataflow import failing_operators
from resurgence.ui.views.incidents import IncidentView, incident_view
from resurgence.ui.views.jobs import JobRow, job_row

_SHORT = timedelta(seconds=1.5)
_LONG = timedelta(seconds=10)
_NONE = timedelta(0)
"""Of what is a part of another feed's value."""
_RATE_OVER = 30.0
_RECENT_INCIDENTS = 1000
_LOG_LINES = 3000
_MOST_LETTERS = 1000
_TIMED_EPOCHS = 30
"""How many epochs the share of time of operators is about."""

EventKey = tuple[str, int, int, str, str]
"""The job or nothing, before which id, how many, of which kind or nothing, with which text."""


@dataclass(frozen=True)
class GraphFacts:
    """A job's graph, and what was last stored and measured about its operators."""

    graph: Graph
    newest: CheckpointView | None
    seconds: Mapping[str, float]
    """Of recent epochs, by operator."""


class Feeds:
    """The feeds of a service."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._samples: dict[str, deque[tuple[float, float]]] = {}
        self._histories: dict[str, tuple[datetime, JobHistory]] = {}
        """With the creation of their jobs: another job may have the name now."""
        self._graphs: dict[str, tuple[PipelineRecord, Graph]] = {}
        self.views: Feed[None, list[JobView]] = Feed(self._views, _SHORT)
        self.jobs: Feed[None, list[JobRow]] = Feed(self._jobs, _SHORT)
        self.job: Feed[str, JobView] = Feed(self._job, _SHORT)
        self.record: Feed[str, JobRecord] = Feed(self._record, _NONE)
        self.failing: Feed[str, set[str]] = Feed(self._failing, _NONE)
        self.incidents: Feed[str, list[dict[str, object]]] = Feed(self._incidents, _SHORT)
        self.open_incidents: Feed[str, list[IncidentView]] = Feed(self._open_incidents, _NONE)
        self.events: Feed[EventKey, list[tuple[str, StoredEvent]]] = Feed(self._events, _SHORT)
        self.history: Feed[str, JobHistory] = Feed(self._history, _SHORT)
        self.newest: Feed[str, CheckpointView | None] = Feed(self._newest, _LONG)
        self.graph_facts: Feed[str, GraphFacts] = Feed(self._graph_facts, _LONG)
        self.checkpoints: Feed[str, tuple[CheckpointView, ...]] = Feed(self._checkpoints, _LONG)
        self.letters: Feed[str, DeadLetters] = Feed(self._letters, _LONG)
        self.log: Feed[tuple[str, str], list[str]] = Feed(self._log, _SHORT)
        self.workers: Feed[None, list[WorkerView]] = Feed(self._workers, _SHORT)

    async def _views(self, _: None) -> list[JobView]:
        return await self._controller.jobs()

    async def _jobs(self, _: None) -> list[JobRow]:
        views = await self.views.get(None)
        incidents = await self.incidents.get("")
        yesterday = datetime.now(UTC) - timedelta(days=1)
        recent: dict[str, int] = {}
        for each in incidents:
            if datetime.fromisoformat(str(each["detected_at"])) >= yesterday:
                recent[str(each["job"])] = recent.get(str(each["job"]), 0) + 1
        now = asyncio.get_running_loop().time()
        rows = [
            job_row(each, self._rate(each, now), recent.get(each.record.name, 0)) for each in views
        ]
        names = {each.name for each in rows}
        for kept in (self._samples, self._histories, self._graphs):
            for gone in kept.keys() - names:
                del kept[gone]
        return sorted(rows, key=lambda each: each.name)

    def _rate(self, view: JobView, now: float) -> float | None:
        """Return the rows read per second, over the last half minute."""
        rows = view.progress.get("rows_in")
        if not isinstance(rows, int | float):
            return None
        samples = self._samples.setdefault(view.record.name, deque())
        if samples and rows < samples[-1][1]:
            samples.clear()
        samples.append((now, float(rows)))
        while len(samples) > 2 and now - samples[0][0] > _RATE_OVER:
            samples.popleft()
        (first_at, first), (last_at, last) = samples[0], samples[-1]
        return (last - first) / (last_at - first_at) if last_at - first_at > 2 else None

    async def _job(self, name: str) -> JobView:
        return await self._controller.job(JobName(name))

    async def _record(self, name: str) -> JobRecord:
        return (await self.job.get(name)).record

    async def _failing(self, name: str) -> set[str]:
        return failing_operators(await self.job.get(name))

    async def _open_incidents(self, job: str) -> list[IncidentView]:
        """Return the incidents that have no end yet."""
        views = [await self.job.get(job)] if job else await self.views.get(None)
        return [
            incident_view(facts, job=each.record.name, is_open=True)
            for each in views
            if isinstance(facts := each.progress.get("incident"), dict)
        ]

    async def _incidents(self, job: str) -> list[dict[str, object]]:
        found = await self._controller.incidents(JobName(job) if job else None, _RECENT_INCIDENTS)
        return [dict(each) for each in reversed(found)]

    async def _events(self, key: EventKey) -> list[tuple[str, StoredEvent]]:
        job, before, limit, kind, text = key
        return [
            (str(name), each)
            for name, each in await self._controller.newest_events(
                JobName(job) if job else None, before=before, limit=limit, kind=kind, text=text
            )
        ]

    async def _history(self, name: str) -> JobHistory:
        """Read only what is new. A job's history is a new value whenever it has grown."""
        created_at = (await self.job.get(name)).record.created_at
        kept = self._histories.get(name)
        before = kept[1] if kept is not None and kept[0] == created_at else None
        found = await JobHistory.after(before, self._controller, JobName(name))
        self._histories[name] = (created_at, found)
        return found

    async def _newest(self, name: str) -> CheckpointView | None:
        record = (await self.job.get(name)).record
        return await self._controller.read_state(record.name, newest_checkpoint)

    async def _graph_facts(self, name: str) -> GraphFacts:
        view = await self.job.get(name)
        known = self._graphs.get(name)
        if known is None or known[0] != view.record.pipeline:
            known = (view.record.pipeline, await self._controller.graph(JobName(name)))
            self._graphs[name] = known
        history = await self.history.get(name)
        seconds: dict[str, float] = {}
        for point in history.points[-_TIMED_EPOCHS:]:
            for operator, spent in point.operators:
                seconds[operator] = seconds.get(operator, 0.0) + spent
        try:
            newest = await self.newest.get(name)
        except ResurgenceError:
            # A job can be looked at while its storage is unavailable, or no checkpoint is valid.
            newest = None
        return GraphFacts(known[1], newest, seconds)

    async def _workers(self, _: None) -> list[WorkerView]:
        return await self._controller.workers()

    async def _log(self, key: tuple[str, str]) -> list[str]:
        """Return the last lines of a worker's log; of the newest one if it is not named."""
        name, worker = key
        files = await self._controller.log_files(JobName(name))
        chosen = [each for each in files if each.stem == worker] if worker else files
        if not chosen:
            return []
        part = await in_thread(last_lines, chosen[-1], _LOG_LINES)
        return part.text.splitlines()

    async def _checkpoints(self, name: str) -> tuple[CheckpointView, ...]:
        return await self._controller.read_state(JobName(name), kept_checkpoints)

    async def _letters(self, name: str) -> DeadLetters:
        found = await self._controller.dead_letters(JobName(name), LetterFilter(), _MOST_LETTERS)
        return await in_thread(letters_answer, found)
