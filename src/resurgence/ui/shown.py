"""What pages show as markup, rendered once for all of them, and again only when it has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from resurgence.api.models import DeadLetters
from resurgence.control.controller import JobView, WorkerView
from resurgence.control.jobs.job_record import JobRecord
from resurgence.control.store.metadata import StoredEvent
from resurgence.state.inspection.checkpoints import CheckpointView
from resurgence.state.inspection.ledger import Ledger, ledger_of
from resurgence.ui.feed import Derived
from resurgence.ui.feeds import Feeds, GraphFacts
from resurgence.ui.job_history import JobHistory
from resurgence.ui.views import events as event_views
from resurgence.ui.views.charts import TITLES, Options, chart
from resurgence.ui.views.checkpoints import checkpoints_panel
from resurgence.ui.views.dataflow import Dataflow, dataflow_panel, operator_facts
from resurgence.ui.views.dead_letters import letters_panel
from resurgence.ui.views.events import EventsKey, events_panel
from resurgence.ui.views.incidents import IncidentView, incident_view, incidents_page
from resurgence.ui.views.job import actions_on, diagnosis, job_head, job_numbers, open_incident
from resurgence.ui.views.jobs import JobRow, JobsKey, JobsShown, jobs_shown
from resurgence.ui.views.ledger import ledger_page
from resurgence.ui.views.logs import log_view
from resurgence.ui.views.markup import NOTHING, Markup, html
from resurgence.ui.views.workers import elsewhere_note, workers_panel


@dataclass(frozen=True)
class HeadKey:
    """The head of a job's pages: of which job and tab, and for whom."""

    job: str
    tab: str
    may_write: bool
    only_stop: bool


@dataclass(frozen=True)
class PageKey:
    """A page of a list of a job, or of all if the name is empty."""

    job: str
    page: int = 0
    may_write: bool = False
    opened: int | None = None
    """What is shown in full."""


@dataclass(frozen=True)
class LogKey:
    """A log: of which job and worker, and which of its lines."""

    job: str
    worker: str
    text: str


class Shown:
    """What the pages of a service show."""

    def __init__(self, feeds: Feeds, others: Callable[[], int]) -> None:
        """`others` is the number of other controllers."""
        self._feeds = feeds
        self._others = others
        self._ledgers: Derived[str, Ledger] = Derived(self._of_checkpoints, _ledger)
        self.jobs: Derived[JobsKey, JobsShown] = Derived(self._of_jobs, _jobs)
        self.head: Derived[HeadKey, Markup] = Derived(self._of_record, _head)
        self.numbers: Derived[str, Markup] = Derived(self._of_numbers, _numbers)
        self.dataflow: Derived[str, Markup] = Derived(self._of_dataflow, _dataflow)
        self.charts: Derived[str, Mapping[str, Options]] = Derived(self._of_history, _charts)
        self.incidents: Derived[PageKey, Markup] = Derived(self._of_incidents, _incidents)
        self.events: Derived[EventsKey, Markup] = Derived(self._of_events, _events)
        self.checkpoints: Derived[PageKey, Markup] = Derived(
            lambda key: self._of_checkpoints(key.job), _checkpoints
        )
        self.letters: Derived[PageKey, Markup] = Derived(self._of_letters, _letters)
        self.ledger: Derived[PageKey, Markup] = Derived(self._of_ledger, _ledger_page)
        self.log: Derived[LogKey, Markup] = Derived(self._of_log, _log)
        self.workers: Derived[None, Markup] = Derived(self._of_workers, _workers)

    async def _of_jobs(self, _: JobsKey) -> tuple[object, ...]:
        return (await self._feeds.jobs.get(None),)

    async def _of_record(self, key: HeadKey) -> tuple[object, ...]:
        return (await self._feeds.record.get(key.job),)

    async def _of_numbers(self, job: str) -> tuple[object, ...]:
        return (await self._feeds.job.get(job), await self._feeds.jobs.get(None))

    async def _of_dataflow(self, job: str) -> tuple[object, ...]:
        return (await self._feeds.graph_facts.get(job), await self._feeds.failing.get(job))

    async def _of_history(self, job: str) -> tuple[object, ...]:
        return (await self._feeds.history.get(job),)

    async def _of_incidents(self, key: PageKey) -> tuple[object, ...]:
        return (
            await self._feeds.open_incidents.get(key.job),
            await self._feeds.incidents.get(key.job),
            await self._feeds.record.get(key.job) if key.job else None,
        )

    async def _of_events(self, key: EventsKey) -> tuple[object, ...]:
        limit = event_views.PAGE + 1
        return (await self._feeds.events.get((key.job, key.before, limit, key.kind, key.text)),)

    async def _of_checkpoints(self, job: str) -> tuple[object, ...]:
        return (await self._feeds.checkpoints.get(job),)

    async def _of_letters(self, key: PageKey) -> tuple[object, ...]:
        return (await self._feeds.letters.get(key.job),)

    async def _of_ledger(self, key: PageKey) -> tuple[object, ...]:
        return (await self._ledgers.get(key.job),)

    async def _of_log(self, key: LogKey) -> tuple[object, ...]:
        return (await self._feeds.log.get((key.job, key.worker)),)

    async def _of_workers(self, _: None) -> tuple[object, ...]:
        return (await self._feeds.workers.get(None), self._others())


def _jobs(key: JobsKey, rows: list[JobRow]) -> JobsShown:
    return jobs_shown(rows, key)


def _head(key: HeadKey, record: JobRecord) -> Markup:
    actions = actions_on(record, only_stop=key.only_stop) if key.may_write else []
    return job_head(record, key.tab, actions)


def _numbers(job: str, view: JobView, rows: list[JobRow]) -> Markup:
    row = next((each for each in rows if each.name == job), None)
    if row is None:
        return NOTHING
    return html(
        "{}{}{}",
        diagnosis(view.record),
        open_incident(view.progress, job),
        job_numbers(row, view.progress),
    )


def _dataflow(_: str, known: GraphFacts, failing: set[str]) -> Markup:
    facts = operator_facts(known.graph, known.newest, known.seconds, failing)
    about = f" · counts and state as of epoch {known.newest.epoch}" if known.newest else ""
    return dataflow_panel(Dataflow(known.graph, facts), about)


def _charts(_: str, history: JobHistory) -> Mapping[str, Options]:
    return {kind: chart(kind, history.points) for kind in TITLES}


def _incidents(
    key: PageKey,
    is_open: list[IncidentView],
    closed: list[dict[str, Any]],
    record: JobRecord | None,
) -> Markup:
    top = NOTHING if record is None else diagnosis(record)
    views = [*is_open, *map(incident_view, closed)]
    return html("{}{}", top, incidents_page(views, key.page, with_job=not key.job))


def _events(key: EventsKey, found: list[tuple[str, StoredEvent]]) -> Markup:
    return events_panel(found, key)


def _ledger(_: str, views: tuple[CheckpointView, ...]) -> Ledger:
    return ledger_of(views)


def _ledger_page(key: PageKey, ledger: Ledger) -> Markup:
    return ledger_page(ledger, key.page)


def _checkpoints(key: PageKey, views: tuple[CheckpointView, ...]) -> Markup:
    return checkpoints_panel(views, key.page, may_write=key.may_write, opened=key.opened)


def _letters(key: PageKey, letters: DeadLetters) -> Markup:
    return letters_panel(letters, key.page, may_write=key.may_write)


def _log(key: LogKey, lines: list[str]) -> Markup:
    return log_view(lines, key.text)


def _workers(_: None, workers: list[WorkerView], others: int) -> Markup:
    return html("{}{}", workers_panel(workers), elsewhere_note(others))
