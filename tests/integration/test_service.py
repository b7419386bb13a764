"""A service with real workers: its jobs survive a crash of it, and it handles requests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from resurgence.control.jobs.transitions import EDGES, StateName
from tests.integration.conftest import BY_MINUTE, QUICK, RIDES, SQL, Project, settings

DEADLINE_SECONDS = 300.0
HEARTBEATS = ("pipeline.heartbeat_interval=200ms", "pipeline.heartbeat_timeout=8s")


TICKS = """CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '100');
CREATE TABLE nowhere WITH (connector = 'blackhole');
INSERT INTO nowhere SELECT counter FROM ticks"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Service:
    """`resurgence serve` as a user starts it, and requests to it."""

    folder: Path
    arguments: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = (self.folder / "serve.log").open("ab")
        command = [sys.executable, "-m", "resurgence", "serve", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, *self.arguments], cwd=self.folder, stdout=log, stderr=log
        )
        log.close()
        self.until(lambda: self.answers(), "the service answers")

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=30).is_success
        except httpx.TransportError:
            return False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cli(self, *words: str) -> str:
        """A command against this service."""
        done = subprocess.run(
            [sys.executable, "-m", "resurgence", *words, "--server", self.url],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def get(self, path: str) -> Any:
        return httpx.get(f"{self.url}{path}", timeout=30).raise_for_status().json()

    def job(self, name: str) -> Any:
        return self.get(f"/v1/jobs/{name}")

    def state(self, name: str) -> str:
        return str(self.job(name)["status"]["state"])

    def epoch(self, name: str) -> int:
        return int(self.job(name)["progress"].get("committed_epoch", 0))

    def events(self, name: str, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after = 0
        while page := self.get(f"/v1/jobs/{name}/events?after={after}&limit=1000")["events"]:
            found += page
            after = page[-1]["id"]
        return [each for each in found if each["event"] == kind]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                log = (self.folder / "serve.log").read_text()
                pytest.fail(f"it did not come to this: {what}\n{log}")
            time.sleep(0.1)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Service]:
    service = Service(folder, arguments)
    service.start()
    try:
        yield service
    finally:
        service.close()


@pytest.mark.timeout(800)
def test_jobs_survive_the_sigkill_of_their_controllers(project: Project, postgres_url: str) -> None:
    """Three controllers, two jobs. Those that run them are killed. One worker continues and is adopted
    by the third; the other one is frozen, and its job is restored.
    """
    project.write_input(3000)  # Neither must be through before both have begun.
    jobs = ("goes-on", "frozen")
    common = settings(
        *QUICK, *HEARTBEATS, "pipeline.epoch_rows=100", "controller.adopt_timeout=25s"
    )
    with ExitStack() as ending:
        controllers = [
            ending.enter_context(serving(project.folder, "--database", postgres_url, *common))
            for _ in range(3)
        ]
        for job in jobs:
            project.write_pipeline(job, RIDES + BY_MINUTE)
            controllers[0].cli("create", f"{job}.sql")
        service = controllers[0]
        service.until(lambda: all(service.epoch(job) >= 2 for job in jobs), "all jobs run")
        workers = service.get("/v1/workers")["workers"]
        pids = {each["job"]: each["pid"] for each in workers}
        owners = {each["controller"] for each in workers}
        assert len(owners) == 2
        for each in controllers:
            if each.url in owners:
                each.kill()
            else:
                service = each
        os.kill(pids["frozen"], signal.SIGSTOP)
        service.until(lambda: all(service.state(job) == "Finished" for job in jobs), "all finish")
        for job in jobs:
            project.assert_exactly_once(job)
            for event in service.events(job, "state"):
                assert StateName(event["to"]) in EDGES[StateName(event["from"])]
        started = {job: service.events(job, "worker_started") for job in jobs}
        assert [each["origin"] for each in started["goes-on"]] == ["started", "adopted"]
        assert {each["pid"] for each in started["goes-on"]} == {pids["goes-on"]}
        assert [each["generation"] for each in started["frozen"]] == [1, 2]
        (incident,) = service.events("frozen", "incident")
        assert incident["kind"] == "controller_lost"
        assert incident["resumed_at"]


@pytest.mark.timeout(500)
def test_a_standby_takes_over_and_a_job_follows_the_requests_of_its_user(project: Project) -> None:
    (project.folder / "ticks.sql").write_text(TICKS)
    project.write_input(2000)
    project.write_pipeline("rides", RIDES + BY_MINUTE)
    common = settings(*QUICK, *HEARTBEATS, "pipeline.epoch_rows=100", "controller.standby=1")
    with serving(project.folder, *common) as service:
        service.cli("create", "ticks.sql")
        service.until(lambda: service.epoch("ticks") >= 1, "the job runs")
        service.until(
            lambda: any(
                each["state"] == "standby" for each in service.get("/v1/workers")["workers"]
            ),
            "a standby is ready",
        )
        assert service.process is not None
        service.process.send_signal(signal.SIGSTOP)
        time.sleep(10)  # Longer than the heartbeat timeout: its own silence, not the worker's.
        service.process.send_signal(signal.SIGCONT)
        seen = service.epoch("ticks")
        service.until(lambda: service.epoch("ticks") >= seen + 2, "it goes on")
        assert not service.events("ticks", "failure")

        os.kill(int(service.job("ticks")["status"]["worker_pid"]), signal.SIGKILL)
        service.until(lambda: bool(service.events("ticks", "incident")), "it has recovered")
        assert service.events("ticks", "worker_started")[-1]["origin"] == "standby"
        service.cli("delete", "ticks", "--with-state", "--yes")

        service.cli("create", "rides.sql", "--parallelism", "1")
        service.until(lambda: service.epoch("rides") >= 1, "the job runs")
        service.cli("rescale", "rides", "3")
        service.until(lambda: service.job("rides")["status"]["parallelism"] == 3, "rescaled")
        service.cli("stop", "rides", "--mode", "checkpoint")
        service.until(lambda: service.state("rides") == "Stopped", "stopped")
        stopped_at = service.epoch("rides")
        service.cli("restart", "rides", "--without-state")
        service.until(lambda: bool(service.events("rides", "reset")), "the state is left behind")
        service.until(lambda: service.state("rides") == "Finished", "it has finished")
        assert service.epoch("rides") > stopped_at
        project.assert_exactly_once("rides")
        assert "Finished" in service.cli("list")

        service.cli("delete", "rides", "--with-state", "--yes")
        service.until(lambda: service.get("/v1/jobs")["jobs"] == [], "the job is gone")
        assert not list((project.folder / ".resurgence" / "rides").rglob("*.json"))


@pytest.mark.timeout(400)
def test_a_running_job_is_rolled_back_and_returns_the_batch_answer(project: Project) -> None:
    project.write_input(540)
    project.write_pipeline("rides", SQL)
    wider = (project.folder / "rides.sql").read_text().replace("10 minutes", "20 minutes")
    (project.folder / "wider.sql").write_text(wider)
    common = settings(*QUICK, *HEARTBEATS, "pipeline.epoch_rows=30", "checkpoint.keep=50")
    with serving(project.folder, *common) as service:
        service.cli("create", "rides.sql")
        service.until(lambda: service.epoch("rides") >= 4, "the job runs")
        refused = httpx.put(
            f"{service.url}/v1/jobs/rides/pipeline", json={"sql": wider}, timeout=30
        )
        assert refused.status_code == 409
        assert "(LOST)" in refused.json()["error"]["message"]
        reported = service.cli("rollback", "rides", "--to-epoch", "2", "--dry-run")
        assert "back to epoch 2: epochs 3 to" in reported
        assert "nothing was changed" in reported
        asked = httpx.post(
            f"{service.url}/v1/jobs/rides/rollback", json={"to_epoch": 2}, timeout=30
        )
        assert asked.status_code == 202
        service.until(lambda: bool(service.events("rides", "rollback")), "it is rolled back")
        (event,) = service.events("rides", "rollback")
        highest = int(event["highest_epoch"])
        assert event["to_epoch"] == 2
        assert highest >= 4
        service.until(lambda: service.epoch("rides") > highest, "it goes on")
        service.cli("stop", "rides", "--wait")
        stopped = service.state("rides")
        if stopped == "Stopped":
            service.cli("rollback", "rides", "--to-epoch", str(highest + 1))
            service.until(lambda: len(service.events("rides", "rollback")) == 2, "rolled back")
            service.until(lambda: service.state("rides") == "Stopped", "it stays stopped")
        service.cli("start", "rides")
        service.until(lambda: service.state("rides") == "Finished", "it finishes")
        assert not service.events("rides", "failure")
        project.assert_exactly_once("rides")
