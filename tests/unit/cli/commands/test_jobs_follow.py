"""`--follow`, as a real process, while the service restarts."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import httpx
from tests.unit.api.simulated_service import SQL, KeyBox, SimulatedController, served, simulated

from resurgence.ids import JobName

RIDES = JobName("rides")
LONGEST = 30


class Following:
    """A command that goes on, and its lines as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._out: queue.Queue[str] = queue.Queue()
        self._err: queue.Queue[str] = queue.Queue()
        self._readers = [
            threading.Thread(target=_copy, args=pair, daemon=True)
            for pair in ((process.stdout, self._out), (process.stderr, self._err))
        ]
        for each in self._readers:
            each.start()

    def out(self) -> str:
        return self._out.get(timeout=LONGEST)

    def err(self) -> str:
        return self._err.get(timeout=LONGEST)

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(LONGEST)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(LONGEST)
        for each in self._readers:
            each.join(LONGEST)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def _copy(stream: IO[str], lines: queue.Queue[str]) -> None:
    for line in stream:
        lines.put(line.rstrip("\n"))


@contextmanager
def following(*arguments: str) -> Iterator[Following]:
    process = subprocess.Popen(
        [sys.executable, "-m", "resurgence", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    made = Following(process)
    try:
        yield made
    finally:
        made.close()


def create(url: str) -> None:
    made = httpx.post(
        f"{url}/v1/jobs", json={"name": "rides", "sql": SQL}, trust_env=False, timeout=30
    )
    assert made.status_code == 201


def test_following_events_continues_after_a_restart_of_the_service(tmp_path: Path) -> None:
    controller = SimulatedController(tmp_path)
    with served(simulated(controller), KeyBox([])) as url:
        create(url)
        port = urlsplit(url).port or 0
        stack = following("events", "rides", "--follow", "--server", url)
        follow = stack.__enter__()
        assert "Created" in follow.out()
        controller.happened(RIDES, "state", **{"from": "Created", "to": "Compiling", "reason": "x"})
        assert "Created -> Compiling: x" in follow.out()
    try:
        assert "cannot connect to a service" in follow.err()
        controller.happened(RIDES, "state", **{"from": "a", "to": "b", "reason": "meanwhile"})
        with served(simulated(controller), KeyBox([]), port=port):
            assert "a -> b: meanwhile" in follow.out()
            assert follow.err() == "the service is available again"
            assert follow.interrupt() == 0
    finally:
        stack.__exit__(None, None, None)


def test_following_ends_when_the_job_is_deleted(tmp_path: Path) -> None:
    controller = SimulatedController(tmp_path)
    with served(simulated(controller), KeyBox([])) as url:
        create(url)
        with following("events", "rides", "--follow", "--server", url) as follow:
            follow.out()
            del controller.records[RIDES]
            assert follow.err() == "the job was deleted"
            assert follow.process.wait(LONGEST) == 0


def test_following_logs_continues_with_the_next_worker(tmp_path: Path) -> None:
    controller = SimulatedController(tmp_path)
    with served(simulated(controller), KeyBox([])) as url:
        create(url)
        first, second = tmp_path / "w1.log", tmp_path / "w2.log"
        first.write_text("one\n")
        controller.logs[RIDES] = [first]
        with following("logs", "rides", "--follow", "--server", url) as follow:
            assert follow.out() == "one"
            with first.open("a") as more:
                more.write("last words\n")
            second.write_text("a new worker\n")
            controller.logs[RIDES] = [first, second]
            assert [follow.out(), follow.out()] == ["last words", "a new worker"]
            assert follow.err() == "log of worker w2"
            assert follow.interrupt() == 0
