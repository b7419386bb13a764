"""`resurgence run --ui` over real HTTP, as a process: a process has at most one console."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

SCRIPT = """
import sys
from resurgence.control import embedded
from tests.unit.control.conftest import ScriptedScheduler

async def runs_until_stopped(worker):
    worker.job_runs.set()
    await worker.restore()
    await worker.run_epoch(worker.first_epoch)
    return await worker.beat_until_stopped()

embedded.make_scheduler = lambda _name: ScriptedScheduler(runs_until_stopped)
from resurgence.cli.app import main
sys.argv[0] = "resurgence"
main()
"""
SQL = """\
CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '10');
CREATE TABLE nowhere WITH (connector = 'blackhole');
INSERT INTO nowhere SELECT {} FROM ticks;
"""
FUNCTIONS = """\
from resurgence.udf import udf

@udf
def doubled(number: int) -> int:
    return 2 * number
"""
ROOT = Path(__file__).parents[4]
TABS = ("", "incidents", "checkpoints", "state", "dead-letters", "ledger", "events", "logs", "sql")
PAGES = ("/", "/incidents", "/events", "/workers", "/new", *(f"/jobs/ticks/{tab}" for tab in TABS))


@contextmanager
def running(folder: Path, *flags: str) -> Iterator[httpx.Client]:
    """The console of `run --ui ticks.sql`, when its job has an epoch."""
    command = [sys.executable, "-c", SCRIPT, "run", "ticks.sql", "--ui", *flags]
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, stdout=out, stderr=out, env={"PYTHONPATH": str(ROOT)}
        )
    deadline = time.monotonic() + 120
    try:
        while not (found := re.search(r"console: (http://\S+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        with httpx.Client(base_url=found[1], trust_env=False, timeout=60) as client:
            yield client
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("column", ["counter", "doubled(counter)"], ids=["plain", "with functions"])
def test_every_page_of_run_with_a_console_opens(tmp_path: Path, column: str) -> None:
    (tmp_path / "ticks.sql").write_text(SQL.format(column))
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    with running(tmp_path, *(["--udfs", "functions.py"] if "(" in column else [])) as client:
        for path in PAGES:
            found = client.get(path.removesuffix("/") or "/")
            assert found.status_code == 200, path
            assert "Server error" not in found.text, path
        assert "compiles" in client.get("/jobs/ticks/sql").text
        assert "operators" in client.get("/jobs/ticks").text
