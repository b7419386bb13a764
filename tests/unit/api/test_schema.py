"""The API conforms to its own OpenAPI schema, whatever is sent to it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import pytest
import schemathesis
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from tests.unit.api.simulated_service import SQL, KeyBox, SimulatedController, served

from resurgence.api.access.guard import Guard
from resurgence.api.access.key_ring import KeyRing
from resurgence.api.app import make_app
from resurgence.api.long_polls import MAX_WAIT_SECONDS
from resurgence.cli.commands.serve import BuildController
from resurgence.clock import SystemClock
from resurgence.control.controller import Controller
from resurgence.control.definitions.job_environment import JobEnvironment
from resurgence.control.jobs.job_record import StopMode
from resurgence.control.store.metadata import KeyRole, MetadataStore
from resurgence.control.workers.scheduler import (
    Exited,
    ProcessScheduler,
    WorkerOrder,
    WorkerProcess,
    WorkerStartFailed,
)
from resurgence.control.workers.worker_pool import WorkerPool
from resurgence.state.inspection import query_process

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    response_schema_conformance,
    content_type_conformance,
]


# The description does not depend on what is served.
schema = schemathesis.openapi.from_dict(
    make_app(SimulatedController(Path()), Guard(), KeyRing(list)).openapi()
)


@dataclass(frozen=True)
class Keyed:
    """A service and the headers that open it."""

    url: str
    headers: dict[str, str]


class NoWorkers(ProcessScheduler):
    """Jobs are created, started and changed, and no Spark is started for them."""

    async def start(self, order: WorkerOrder, exited: Exited) -> WorkerProcess:
        raise WorkerStartFailed(f"no process for {order.worker}")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> BuildController:
    """The real controller, with its database and storage."""
    folder = tmp_path_factory.mktemp("service")
    (folder / "state").mkdir()

    @asynccontextmanager
    async def opened() -> AsyncIterator[Controller]:
        metadata, clock = MetadataStore(folder / "service.db"), SystemClock()
        environment = JobEnvironment(f"file://{folder}/state", folder)
        controller = Controller(metadata, WorkerPool(NoWorkers(), clock), environment, clock)
        await controller.open()
        try:
            yield controller
        finally:
            await controller.close(StopMode.FORCE)
            metadata.close()

    return opened


@pytest.fixture(scope="module")
def service(build: BuildController) -> Iterator[Keyed]:
    keys = KeyBox([])
    text = keys.add("writer", KeyRole.WRITE)
    with served(build, keys) as url:
        yield Keyed(url, {"Authorization": f"Bearer {text}"})


@pytest.fixture
def job(service: Keyed) -> str:
    """One that exists."""
    name = f"rides-{uuid.uuid4().hex[:8]}"
    made = httpx.post(
        f"{service.url}/v1/jobs",
        json={"name": name, "sql": SQL, "start": False},
        headers=service.headers,
        trust_env=False,
        timeout=30,
    )
    assert made.status_code == 201, made.text
    return name


@pytest.fixture
def queried_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries have no process of their own, which takes a second for each."""
    monkeypatch.setattr(query_process, "_asked", query_process.answered)


@pytest.mark.usefixtures("queried_here")
@schema.parametrize()
@hypothesis.settings(
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
def test_answers_are_as_described(case: Any, service: Keyed, job: str) -> None:
    # Half of the requested jobs exist, and every wait is short.
    if len(str(case.path_parameters.get("name", ""))) % 2:
        case.path_parameters["name"] = job
    if _is_long(case.query.get("wait")):
        case.query["wait"] = 0.1
    case.call_and_validate(
        base_url=service.url,
        checks=CHECKS,
        headers=service.headers,
        timeout=20,
    )


def _is_long(wait: object) -> bool:
    try:
        return 0.1 < float(str(wait)) <= MAX_WAIT_SECONDS
    except ValueError:
        return False
