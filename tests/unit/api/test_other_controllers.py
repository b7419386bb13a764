"""What only another controller knows is asked for there, with the key of the client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from tests.integration.test_service import free_port
from tests.unit.api.simulated_service import (
    SQL,
    KeyBox,
    SimulatedController,
    served,
    simulated,
)

from resurgence.control.store.metadata import KeyRole
from resurgence.ids import JobName

RIDES = JobName("rides")


@pytest.fixture
def keys() -> KeyBox:
    return KeyBox([])


@pytest.fixture
def here(tmp_path: Path) -> SimulatedController:
    """Answers the requests; it runs no job."""
    return SimulatedController(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> SimulatedController:
    """Runs the job `rides`."""
    return SimulatedController(tmp_path / "there")


@pytest.fixture
def http(
    here: SimulatedController, there: SimulatedController, keys: KeyBox, tmp_path: Path
) -> Iterator[httpx.Client]:
    key = {"Authorization": f"Bearer {keys.add('reader', KeyRole.WRITE)}"}
    with ExitStack() as ending:
        other = ending.enter_context(served(simulated(there), keys))
        url = ending.enter_context(served(simulated(here), keys))
        made = httpx.post(
            f"{other}/v1/jobs", json={"name": "rides", "sql": SQL}, headers=key, timeout=30
        )
        made.raise_for_status()
        httpx.get(
            f"{other}/v1/jobs/rides", headers=key, timeout=30
        ).raise_for_status()  # it gets a worker
        log = tmp_path / "w1.log"
        log.write_text("one\ntwo\n")
        there.logs[RIDES] = [log]
        # Both name the other one: a request that is forwarded twice would never be answered.
        here.others, there.others = (other,), (url,)
        yield ending.enter_context(
            httpx.Client(base_url=url, headers=key, trust_env=False, timeout=20)
        )


def test_a_log_is_read_where_its_job_runs(http: httpx.Client) -> None:
    whole = http.get("/v1/jobs/rides/logs")
    assert (whole.status_code, whole.text) == (200, "one\ntwo\n")
    assert whole.headers["X-Log-Worker"] == whole.headers["X-Log-Newest"] == "w1"
    assert whole.headers["content-type"].startswith("text/plain")
    rest = http.get("/v1/jobs/rides/logs", params={"worker": "w1", "after": 4})
    assert (rest.text, rest.headers["X-Log-Offset"]) == ("two\n", "8")
    unknown = http.get("/v1/jobs/rides/logs", params={"worker": "w9"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "worker.unknown")


def test_the_workers_of_all_controllers_are_listed(http: httpx.Client) -> None:
    answer = http.get("/v1/workers").json()
    assert [(each["job"], each["worker"]) for each in answer["workers"]] == [("rides", "w1")]
    assert answer["workers"][0]["controller"] == "http://here"
    assert answer["unreachable"] == []


def test_a_controller_that_does_not_answer_is_named(
    http: httpx.Client, here: SimulatedController
) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    here.others = (gone, *here.others)
    answer = http.get("/v1/workers").json()
    assert [each["job"] for each in answer["workers"]] == ["rides"]
    assert answer["unreachable"] == [gone]
    log = http.get("/v1/jobs/rides/logs")
    assert log.status_code == 503
    error = log.json()["error"]
    assert error["code"] == "controller.unreachable"
    assert gone in error["message"]
    assert "controller.url" in error["hint"]


def test_a_failing_controller_is_named(http: httpx.Client, there: SimulatedController) -> None:
    there.failing = RuntimeError("a bug")
    answer = http.get("/v1/workers").json()
    assert (answer["workers"], len(answer["unreachable"])) == ([], 1)
