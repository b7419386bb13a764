"""What pages show, one feed for each kind of data, shared by all pages."""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import UTC, datetime, timedelta

from resurgence.api.dead_letter_answer import letters_answer
from resurgence.api.log_tail import last_lines
from resurgence.api.models import DeadLetters
from resurgence.control.background import in_thread
from resurgence.control.controller import Controller, JobView, WorkerView
from resurgence.control.jobs.job_record import PipelineRecord
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
from resurgence.ui.views.dataflow import (
    Dataflow,
    dataflow_panel,
    failing_operators,
    operator_facts,
)
from resurgence.ui.views.jobs import JobRow, JobsKey, JobsShown, job_row, jobs_shown
from resurgence.ui.views.markup import Markup

_SHORT = timedelta(seconds=1.5)
_LONG = timedelta(seconds=10)
_RATE_OVER = 30.0
_RECENT_INCIDENTS = 1000
_LOG_LINES = 3000
_MOST_LETTERS = 1000
_TIMED_EPOCHS = 30
"""How many epochs the share of time of operators is about."""

EventKey = tuple[str, int, int, str, str]
"""The job or nothing, before which id, how many, of which kind or nothing, with which text."""


class Feeds:
    """The feeds of a service."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._samples: dict[str, deque[tuple[float, float]]] = {}
        self._histories: dict[str, JobHistory] = {}
        self._graphs: dict[str, tuple[PipelineRecord, Graph]] = {}
        self.jobs: Feed[None, list[JobRow]] = Feed(self._jobs, _SHORT)
        self.jobs_shown: Feed[JobsKey, JobsShown] = Feed(self._jobs_shown, _SHORT)
        self.job: Feed[str, JobView] = Feed(self._job, _SHORT)
        self.incidents: Feed[str, list[dict[str, object]]] = Feed(self._incidents, _SHORT)
        self.events: Feed[EventKey, list[tuple[str, StoredEvent]]] = Feed(self._events, _SHORT)
        self.history: Feed[str, JobHistory] = Feed(self._history, _SHORT)
        self.newest: Feed[str, CheckpointView | None] = Feed(self._newest, _LONG)
        self.dataflow_picture: Feed[str, Markup] = Feed(self._dataflow_picture, _LONG)
        self.checkpoints: Feed[str, tuple[CheckpointView, ...]] = Feed(self._checkpoints, _LONG)
        self.letters: Feed[str, DeadLetters] = Feed(self._letters, _LONG)
        self.log: Feed[tuple[str, str], list[str]] = Feed(self._log, _SHORT)
        self.workers: Feed[None, list[WorkerView]] = Feed(self._workers, _SHORT)

    async def _jobs(self, _: None) -> list[JobRow]:
        views = await self._controller.jobs()
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
        for gone in self._samples.keys() - {each.name for each in rows}:
            del self._samples[gone]
        return sorted(rows, key=lambda each: each.name)

    async def _jobs_shown(self, key: JobsKey) -> JobsShown:
        return jobs_shown(await self.jobs.get(None), key)

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
        before = self._histories.get(name)
        found = await JobHistory.after(before, self._controller, JobName(name))
        self._histories[name] = found
        return found

    async def _newest(self, name: str) -> CheckpointView | None:
        record = (await self.job.get(name)).record
        return await self._controller.read_state(record.name, newest_checkpoint)

    async def _dataflow_picture(self, name: str) -> Markup:
        """Return the picture of a job's graph, with the numbers of the newest checkpoint."""
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
        facts = operator_facts(known[1], newest, seconds, failing_operators(view))
        about = f" · counts and state as of epoch {newest.epoch}" if newest else ""
        return dataflow_panel(Dataflow(known[1], facts), about)

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
