"""The responses of the routes under /v1/jobs."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from tests.unit.api.simulated_service import (
    NOW,
    SQL,
    KeyBox,
    SimulatedController,
    served,
    simulated,
)

from resurgence.api.error_answer import failure_of
from resurgence.api.models import JOB_NAME
from resurgence.connectors.path_overlap import PathTaken
from resurgence.control.store.metadata import StoredEvent
from resurgence.errors import ConfigError, IncompatibleState
from resurgence.ids import JobName, job_name

RIDES = JobName("rides")


@pytest.fixture
def rides(http: httpx.Client) -> str:
    made = http.post("/v1/jobs", json={"name": "rides", "sql": SQL})
    assert made.status_code == 201, made.text
    return "/v1/jobs/rides"


def test_a_created_job_is_shown_with_its_pipeline(http: httpx.Client) -> None:
    made = http.post(
        "/v1/jobs",
        json={"name": "rides", "sql": SQL, "settings": {"pipeline.parallelism": "4"}},
    )
    assert made.status_code == 201
    job = made.json()
    assert (job["name"], job["status"]["state"], job["desired"]["wanted"]) == (
        "rides",
        "Created",
        "running",
    )
    assert job["desired"]["parallelism"] == 4
    assert job["pipeline"]["sql"] == SQL
    assert job["pipeline"]["settings"] == {"pipeline.parallelism": "4"}
    assert http.get("/v1/jobs/rides").json()["status"]["state"] == "Running"
    listed = http.get("/v1/jobs").json()["jobs"]
    assert [each["name"] for each in listed] == ["rides"]
    assert "pipeline" not in listed[0]


def test_a_job_can_be_created_stopped(http: httpx.Client) -> None:
    made = http.post("/v1/jobs", json={"name": "rides", "sql": SQL, "start": False})
    assert (made.json()["status"]["state"], made.json()["desired"]["wanted"]) == (
        "Stopped",
        "stopped",
    )


def test_a_name_that_is_taken_is_a_conflict(http: httpx.Client, rides: str) -> None:
    again = http.post("/v1/jobs", json={"name": "rides", "sql": SQL})
    assert (again.status_code, again.json()["error"]["code"]) == (409, "job.exists")


def test_a_file_that_another_job_writes_is_a_conflict() -> None:
    answer = failure_of(PathTaken("table 'out' writes to out.json, and so does job 'trips'"))
    assert (answer.status, answer.detail.code) == (409, "sink.path_taken")


def test_bad_sql_is_reported_with_its_position(http: httpx.Client) -> None:
    answer = http.post("/v1/jobs", json={"name": "bad", "sql": "SELECT 1;\nSELEC 2;"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["domain"]) == (422, "sql", "user")
    assert (error["line"], error["column"]) == (2, 1)
    assert "SELECT" in error["hint"]


def test_an_unknown_setting_is_refused(http: httpx.Client) -> None:
    answer = http.post(
        "/v1/jobs", json={"name": "x", "sql": SQL, "settings": {"pipeline.paralelism": "4"}}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "config")


def test_secrets_are_refused_and_nothing_is_stored(
    http: httpx.Client, controller: SimulatedController, rides: str
) -> None:
    sql = SQL.replace("format = 'json'", "format = 'json', password = 'hunter2'")
    for answer in (
        http.post("/v1/jobs", json={"name": "x", "sql": sql}),
        http.put(f"{rides}/pipeline", json={"sql": sql}),
    ):
        assert answer.status_code == 422
        error = answer.json()["error"]
        assert (error["code"], error["line"]) == ("sql.literal_secret", 3)
        assert "hunter2" not in answer.text
    settings = {"spark.hadoop.fs.s3a.secret.key": "hunter2"}
    answer = http.post("/v1/jobs", json={"name": "x", "sql": SQL, "settings": settings})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "setting.literal_secret")
    assert "hunter2" not in repr(controller.records)


def test_whatever_is_stored_is_shown_masked(
    http: httpx.Client, controller: SimulatedController, rides: str
) -> None:
    record = controller.records[RIDES]
    pipeline = replace(
        record.pipeline,
        sql=SQL.replace("format = 'json'", "format = 'json', password = 'hunter2'"),
        settings={"spark.hadoop.fs.s3a.secret.key": "hunter2"},
        state_url="s3://me:hunter2@bucket",
    )
    controller.records[RIDES] = replace(record, pipeline=pipeline)
    shown = http.get(rides)
    assert "hunter2" not in shown.text
    assert shown.text.count("***") == 3


def test_an_edit_replaces_the_pipeline(http: httpx.Client, rides: str) -> None:
    edited = http.put(
        f"{rides}/pipeline",
        json={"sql": SQL + "\n-- more", "settings": {"pipeline.parallelism": "8"}},
    )
    assert edited.status_code == 202
    assert edited.json()["pipeline"]["sql"].endswith("-- more")
    assert edited.json()["desired"]["parallelism"] == 8


def test_an_edit_that_would_lose_state_is_a_conflict(
    http: httpx.Client, controller: SimulatedController, rides: str
) -> None:
    controller.failing = IncompatibleState("would lose state:\n  window-7f  drop", hint="Undo it.")
    refused = http.put(f"{rides}/pipeline", json={"sql": SQL})
    controller.failing = None
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "state.incompatible")
    assert "window-7f  drop" in refused.json()["error"]["message"]


def test_a_rollback_is_previewed_before_it_is_requested(
    http: httpx.Client, controller: SimulatedController, rides: str
) -> None:
    shown = http.get(f"{rides}/rollback", params={"to_epoch": 3})
    assert shown.status_code == 200
    assert shown.json() == {
        "to_epoch": 3,
        "first_undone": 4,
        "last_undone": 7,
        "last_held": None,
        "rows": 1200,
        "sinks": [{"table": "hourly", "rows": 1200, "retracts": True}],
        "sources": [{"operator": "source-rides", "offset": {"line": 40}, "rows": 5000}],
    }
    assert controller.records[JobName("rides")].desired.reset_run == 0
    asked = http.post(f"{rides}/rollback", json={"to_epoch": 3})
    assert (asked.status_code, asked.json()["desired"]["run"]) == (202, 2)
    desired = controller.records[JobName("rides")].desired
    assert (desired.reset_run, desired.reset_epoch, desired.force) == (2, 3, True)
    assert http.post(f"{rides}/rollback", json={"to_epoch": -1}).status_code == 422
    assert http.post(f"{rides}/rollback").status_code == 422


def test_a_rollback_that_would_duplicate_rows_is_a_conflict_unless_that_is_accepted(
    http: httpx.Client, controller: SimulatedController, rides: str
) -> None:
    controller.sinks_retract = False
    refused = http.post(f"{rides}/rollback", json={"to_epoch": 3})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "rollback.refused")
    accepted = {"to_epoch": 3, "accept_duplicates": True}
    assert http.post(f"{rides}/rollback", json=accepted).status_code == 202


def test_a_forced_stop_overrides_a_graceful_one(http: httpx.Client, rides: str) -> None:
    assert http.post(f"{rides}/stop").json()["desired"]["stop_mode"] == "checkpoint"
    assert (
        http.post(f"{rides}/stop", json={"mode": "force"}).json()["desired"]["stop_mode"] == "force"
    )
    again = http.post(f"{rides}/stop", json={"mode": "checkpoint"})
    assert (again.status_code, again.json()["desired"]["stop_mode"]) == (202, "force")
    assert http.post(f"{rides}/stop", json={"mode": "gently"}).status_code == 422


def test_start_and_restart_and_rescale(http: httpx.Client, rides: str) -> None:
    assert http.post(f"{rides}/start").json()["desired"]["run"] == 1, "it runs already"
    again = http.post(f"{rides}/restart", json={"force": True, "without_state": True})
    assert (again.status_code, again.json()["desired"]["run"]) == (202, 2)
    assert (
        http.post(f"{rides}/rescale", json={"parallelism": 64}).json()["desired"]["parallelism"]
        == 64
    )
    assert http.post(f"{rides}/rescale", json={"parallelism": 65}).status_code == 422


def test_a_job_that_is_being_deleted_takes_no_more_requests(
    http: httpx.Client, controller: SimulatedController, rides: str
) -> None:
    gone = http.delete(rides, params={"with_state": True})
    assert (gone.status_code, gone.json()["desired"]["wanted"]) == (202, "deleted")
    assert controller.records[RIDES].desired.delete_state
    late = http.post(f"{rides}/start")
    assert (late.status_code, late.json()["error"]["code"]) == (409, "job.being_deleted")
    assert http.get(rides).status_code == 404


def test_events_after_the_last_one_seen_are_returned(
    http: httpx.Client, controller: SimulatedController, rides: str
) -> None:
    for epoch in (1, 2, 3):
        controller.happened(RIDES, "committed", epoch=epoch)
    found = http.get(f"{rides}/events", params={"after": 1, "limit": 2}).json()["events"]
    assert [(each["id"], each["event"], each["epoch"]) for each in found] == [
        (2, "committed", 1),
        (3, "committed", 2),
    ]


def test_a_long_poll_is_answered_when_something_happens(
    http: httpx.Client, controller: SimulatedController, rides: str
) -> None:
    def happen() -> None:
        controller.happened(RIDES, "committed", epoch=1)

    timer = threading.Timer(0.3, happen)
    timer.start()
    began = time.monotonic()
    found = http.get(f"{rides}/events", params={"after": 1, "wait": 15}).json()["events"]
    assert [each["event"] for each in found] == ["committed"]
    assert 0.2 < time.monotonic() - began < 10
    timer.join()


def test_a_long_poll_ends_without_events_and_is_bounded(http: httpx.Client, rides: str) -> None:
    assert http.get(f"{rides}/events", params={"after": 1, "wait": 0.2}).json() == {"events": []}
    assert http.get(f"{rides}/events", params={"wait": 31}).status_code == 422
    assert http.get(f"{rides}/events", params={"wait": "nan"}).status_code == 422


def test_a_service_that_closes_answers_waiting_requests(tmp_path: Path) -> None:
    is_polled = threading.Event()

    class Polled(SimulatedController):
        async def events(self, name: JobName, after: int, limit: int) -> list[StoredEvent]:
            is_polled.set()
            return await super().events(name, after, limit)

    answers: list[httpx.Response] = []
    with served(simulated(Polled(tmp_path)), KeyBox([])) as url:
        httpx.post(
            f"{url}/v1/jobs", json={"name": "rides", "sql": SQL}, trust_env=False, timeout=30
        )

        def poll() -> None:
            answers.append(
                httpx.get(
                    f"{url}/v1/jobs/rides/events?after=1&wait=30", trust_env=False, timeout=40
                )
            )

        waiting = threading.Thread(target=poll)
        waiting.start()
        assert is_polled.wait(20)
        began = time.monotonic()
    waiting.join(20)
    assert [each.status_code for each in answers] == [200]
    assert time.monotonic() - began < 5


def test_the_guarantee_of_each_table_is_shown(http: httpx.Client, rides: str) -> None:
    more = """
        CREATE TABLE shown (n BIGINT) WITH (connector = 'stdout', type = 'sink');
        CREATE TABLE files WITH (connector = 'filesystem', path = 'out', type = 'sink');
        CREATE TABLE spent (n BIGINT) WITH (connector = 'postgres', type = 'sink',
            dsn = 'postgresql://writer@db/shop', table = 'spent');
        CREATE TABLE lake WITH (connector = 'delta', path = 'lake', type = 'sink');
        CREATE TABLE ice WITH (connector = 'iceberg', type = 'sink', 'catalog.rest.url' = 'http://c',
            namespace = 'a', table_name = 'b');
        INSERT INTO shown SELECT driver FROM rides;
        INSERT INTO files SELECT driver FROM rides;
        INSERT INTO files SELECT driver + 1 AS driver FROM rides;
        INSERT INTO spent SELECT driver AS n FROM rides;
        INSERT INTO lake SELECT driver FROM rides;
        INSERT INTO ice SELECT driver FROM rides;
    """
    assert http.put(f"{rides}/pipeline", json={"sql": SQL + more}).status_code == 202
    answer = http.get(f"{rides}/sinks")
    assert answer.status_code == 200
    assert [tuple(each.values()) for each in answer.json()["sinks"]] == [
        ("hourly", "blackhole", "exactly once"),
        ("shown", "stdout", "at least once"),
        ("files", "filesystem", "exactly once"),
        ("spent", "postgres", "exactly once"),
        ("lake", "delta", "exactly once"),
        ("ice", "iceberg", "exactly once"),
    ]
    assert http.get("/v1/jobs/none/sinks").status_code == 404


def test_incidents_of_a_job_and_of_all(
    http: httpx.Client, controller: SimulatedController, rides: str
) -> None:
    controller.reported = [{"job": "rides", "kind": "worker_exited"}, {"job": "b", "kind": "x"}]
    assert len(http.get("/v1/incidents").json()["incidents"]) == 2
    assert http.get(f"{rides}/incidents").json()["incidents"] == [controller.reported[0]]
    assert http.get("/v1/jobs/none/incidents").status_code == 404


def test_workers_are_shown_without_their_token(http: httpx.Client, rides: str) -> None:
    http.get(rides)
    answer = http.get("/v1/workers")
    assert answer.json()["workers"] == [
        {
            "worker": "w1",
            "generation": 1,
            "pid": 4711,
            "job": "rides",
            "state": "running",
            "phase": "execute",
            "started_at": NOW.isoformat().replace("+00:00", "Z"),
            "last_heard_at": None,
            "executors": [],
            "controller": None,
        }
    ]
    assert "digest" not in answer.text


def test_the_log_of_a_worker_is_returned_and_can_be_continued(
    http: httpx.Client, controller: SimulatedController, rides: str, tmp_path: Path
) -> None:
    assert http.get(f"{rides}/logs").text == ""
    old, new = tmp_path / "w1.log", tmp_path / "w2.log"
    old.write_text("old\n")
    new.write_text("one\ntwo\n")
    controller.logs[RIDES] = [old, new]
    tail = http.get(f"{rides}/logs", params={"lines": 1})
    assert tail.text == "two\n"
    assert tail.headers["content-type"].startswith("text/plain")
    assert (tail.headers["x-log-worker"], tail.headers["x-log-offset"]) == ("w2", "8")
    assert http.get(f"{rides}/logs", params={"after": 4}).text == "two\n"
    first = http.get(f"{rides}/logs", params={"worker": "w1"})
    assert (first.text, first.headers["x-log-newest"]) == ("old\n", "w2")
    unknown = http.get(f"{rides}/logs", params={"worker": "w3"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "worker.unknown")
    assert http.get(f"{rides}/logs", params={"worker": "../w1"}).status_code == 422


def test_metrics_and_health(http: httpx.Client) -> None:
    metrics = http.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "resurgence_jobs" in metrics.text
    assert http.get("/health").json()["status"] == "ok"
    assert http.get("/ready").json()["status"] == "ok"
    assert http.get("/docs").status_code == 200


@pytest.mark.parametrize(
    "name", ["a", "A9_.-", "a" * 100, "", ".a", "-a", "a" * 101, "a b", "ä", "a\n"]
)
def test_names_are_checked_as_elsewhere(name: str) -> None:
    fits = re.fullmatch(JOB_NAME.strip("^$"), name) is not None
    try:
        job_name(name)
    except ConfigError:
        assert not fits
    else:
        assert fits
