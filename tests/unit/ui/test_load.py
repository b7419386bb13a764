"""What open pages cost: reads of the database and rendering depend on what is shown, not on how many
pages show it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.unit.api.simulated_service import SQL, SimulatedController

from resurgence.control.controller import NewJob
from resurgence.control.store.metadata import MetadataStore, StoredEvent
from resurgence.ids import JobName
from resurgence.ui import feeds as feeds_module
from resurgence.ui.feed import Derived
from resurgence.ui.feeds import Feeds
from resurgence.ui.shown import HeadKey, LogKey, PageKey, Shown
from resurgence.ui.views.events import EventsKey
from resurgence.ui.views.jobs import JobsKey

JOBS, EVENTS, ROUNDS = 200, 100_000, 5
READS = ["job", "jobs", "newest_events", "incidents", "events", "log_files", "workers"]


class CountedController(SimulatedController):
    """Jobs in memory, events in a real database. Counts what is asked."""

    def __init__(self, folder: Path, store: MetadataStore) -> None:
        super().__init__(folder)
        self.store = store
        self.asked: Counter[str] = Counter()

    async def newest_events(
        self,
        name: JobName | None,
        *,
        before: int = 0,
        limit: int = 100,
        kind: str = "",
        text: str = "",
    ) -> list[tuple[JobName, StoredEvent]]:
        return self.store.newest_events(name, before=before, limit=limit, kind=kind, text=text)

    async def events(self, name: JobName, after: int, limit: int) -> list[StoredEvent]:
        return self.store.events(name, after=after, limit=limit)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetadataStore]:
    """With many events of many jobs, of which few are failures."""
    with closing(MetadataStore(tmp_path_factory.mktemp("load") / "metadata.db")) as made:
        at = datetime(2030, 1, 1, tzinfo=UTC).isoformat()
        made.record_events(
            [
                (
                    JobName(f"job-{number % JOBS}"),
                    {
                        "event": "failure" if number == 5 else "checkpoint",
                        "at": at,
                        "epoch": number // JOBS + 1,
                    },
                )
                for number in range(EVENTS)
            ]
        )
        yield made


@pytest.fixture
def controller(
    store: MetadataStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CountedController:
    made = CountedController(tmp_path, store)

    async def create() -> None:
        for number in range(JOBS):
            await made.create(NewJob(JobName(f"job-{number}"), SQL))

    asyncio.run(create())
    for name in READS:
        monkeypatch.setattr(made, name, counted(made.asked, name, getattr(made, name)))
    return made


def counted(
    asked: Counter[str], name: str, call: Callable[..., Awaitable[object]]
) -> Callable[..., Awaitable[object]]:
    async def count(*args: object, **kwargs: object) -> object:
        asked[name] += 1
        return await call(*args, **kwargs)

    return count


async def look(shown: Shown) -> None:
    """What one page of each kind asks for when it is redrawn."""
    job = "job-7"
    await shown.jobs.get(JobsKey())
    await shown.head.get(HeadKey(job, "", may_write=True, only_stop=False))
    await shown.numbers.get(job)
    await shown.charts.get(job)
    for name in ("", job):
        await shown.incidents.get(PageKey(name))
        await shown.events.get(EventsKey(name))
        await shown.events.get(EventsKey(name, kind="failure"))
    await shown.log.get(LogKey(job, "", ""))
    await shown.workers.get(None)


def cost(
    controller: CountedController, pages: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[Counter[str], int]:
    """The reads and the renderings of some rounds of so many pages of each kind."""
    rendered = 0

    def counting(sources: Callable[..., object], derive: Callable[..., object]) -> object:
        def count(*args: object) -> object:
            nonlocal rendered
            rendered += 1
            return derive(*args)

        return Derived(sources, count)  # type: ignore[arg-type]

    async def run() -> None:
        feeds = Feeds(controller)
        with monkeypatch.context() as counted_renderings:
            counted_renderings.setattr("resurgence.ui.shown.Derived", counting)
            shown = Shown(feeds, lambda: 0)
        for _ in range(ROUNDS):
            await asyncio.gather(*(look(shown) for _ in range(pages)))

    controller.asked.clear()
    asyncio.run(run())
    return Counter(controller.asked), rendered


def test_the_work_of_the_service_does_not_grow_with_open_pages(
    controller: CountedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds_module, "_SHORT", timedelta(hours=1))
    alone = cost(controller, 1, monkeypatch)
    assert cost(controller, 30, monkeypatch) == alone
    assert max(alone[0][name] for name in ("jobs", "job", "workers", "log_files")) == 1


def test_what_is_read_again_without_a_change_is_not_rendered_again(
    controller: CountedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds_module, "_SHORT", timedelta(0))
    controller.is_stuck = True
    reads, rendered = cost(controller, 1, monkeypatch)
    assert reads["newest_events"] >= ROUNDS
    monkeypatch.setattr(feeds_module, "_SHORT", timedelta(hours=1))
    assert rendered == cost(controller, 1, monkeypatch)[1]


@pytest.mark.parametrize(
    ("job", "index"), [(None, "events_of_kind"), (JobName("job-5"), "events_of_job_and_kind")]
)
def test_events_of_a_rare_kind_are_found_by_an_index(
    store: MetadataStore, job: JobName | None, index: str
) -> None:
    statements: list[str] = []

    def note(_c: object, _k: object, statement: str, *_: object) -> None:
        statements.append(statement)

    engine = store._database._engine
    sa.event.listen(engine, "before_cursor_execute", note)
    found = store.newest_events(job, limit=101, kind="failure", text="")
    sa.event.remove(engine, "before_cursor_execute", note)
    assert [each.event["epoch"] for _, each in found] == [1]
    arguments = (*([job] if job else []), "failure", 101, 0)
    with engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statements[-1]}", arguments)
        (step,) = [str(each[3]) for each in plan]
    assert step.startswith(f"SEARCH events USING INDEX {index} ")
