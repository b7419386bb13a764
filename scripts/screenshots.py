"""Makes pictures of the console for README and docs: starts a service with a job, lets its worker die
once, and photographs the pages. `make screenshots` replaces those that the docs show;
`python -m scripts.screenshots --all FOLDER` makes all of them.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
from playwright.sync_api import Browser, sync_playwright
from tests.servers.chromium import FLAGS, chromium

_DEADLINE = 300.0
_RUN_SECONDS = 45.0
"""So that the charts have something to show."""
_SETTLED = 2500.0
"""Milliseconds until a page is drawn."""
_JOB = "orders"
_SQL = """\
-- Orders by second and kind, and bad records set aside.
CREATE TABLE clicks WITH (connector = 'impulse', event_rate = '400');

CREATE TABLE orders (
    at       TIMESTAMP NOT NULL,
    customer BIGINT,
    amount   DOUBLE,
    WATERMARK FOR at AS at - INTERVAL '5 seconds'
) WITH (connector = 'filesystem', path = 'in', format = 'json', type = 'source', bad_data = 'dead_letter');

CREATE TABLE clicks_by_kind (second TIMESTAMP, kind BIGINT, clicks BIGINT)
WITH (connector = 'filesystem', path = 'out/clicks', format = 'json', type = 'sink');

CREATE TABLE spending (customer BIGINT, total DOUBLE, orders BIGINT)
WITH (connector = 'blackhole', format = 'debezium_json', type = 'sink');

INSERT INTO clicks_by_kind
SELECT window.start, kind, n FROM (
    SELECT tumble(INTERVAL '1 second') AS window, counter % 4 AS kind, count(*) AS n
    FROM clicks
    GROUP BY window, counter % 4
);

INSERT INTO spending
SELECT customer, sum(amount), count(*) FROM orders GROUP BY customer;
"""
_PAGES = {
    "jobs": "/",
    "job": f"/jobs/{_JOB}",
    "incidents": f"/jobs/{_JOB}/incidents",
    "checkpoints": f"/jobs/{_JOB}/checkpoints",
    "state": f"/jobs/{_JOB}/state",
    "dead-letters": f"/jobs/{_JOB}/dead-letters",
    "ledger": f"/jobs/{_JOB}/ledger",
    "events": f"/jobs/{_JOB}/events",
    "sql": f"/jobs/{_JOB}/sql",
    "workers": "/workers",
}


_ALSO_DARK_AND_NARROW = ("jobs", "job", "incidents", "sql")
IMAGES = Path(__file__).parent.parent / "docs" / "images"
IN_DOCS = ("console-incidents.png", "console-job.png", "console-sql-dark.png")


@dataclass(frozen=True)
class Picture:
    """A page, and how it is photographed."""

    path: str
    is_dark: bool = False
    width: int = 1280


def pictures() -> dict[str, Picture]:
    """Return all pictures by the names of their files."""
    found = {f"console-{name}.png": Picture(path) for name, path in _PAGES.items()}
    for name in _ALSO_DARK_AND_NARROW:
        found[f"console-{name}-dark.png"] = Picture(_PAGES[name], is_dark=True)
        found[f"console-{name}-phone.png"] = Picture(_PAGES[name], width=390)
    return found


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=IMAGES)
    parser.add_argument("--all", action="store_true", help="also those that the docs do not show")
    options = parser.parse_args()
    target: Path = options.folder
    chosen = {name: each for name, each in pictures().items() if options.all or name in IN_DOCS}
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_input(folder / "in")
        with (folder / "serve.log").open("wb") as log:
            command = [sys.executable, "-m", "resurgence", "serve", "--port", "0"]
            service = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            _photograph(_with_a_past(folder / "serve.log"), target, chosen)
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait(_DEADLINE)


def _write_input(folder: Path) -> None:
    folder.mkdir()
    now = datetime.now(UTC).replace(tzinfo=None)
    times = [(now - timedelta(seconds=each)).isoformat(timespec="seconds") for each in range(40)]
    lines = [
        f'{{"at": "{at}", "customer": {number % 7}, "amount": {number}.5}}'
        for number, at in enumerate(reversed(times))
    ]
    lines[7] = '{"at": "yesterday", "customer": 3, "amount": 12.0}'
    (folder / "orders.json").write_text("\n".join([*lines, "not JSON", ""]))


def _with_a_past(log: Path) -> str:
    """Create the job, and kill its worker once. Return the address of the service."""
    found: list[str] = []

    def serves() -> bool:
        found[:] = [each for each in log.read_text().split() if each.startswith("http://")]
        return bool(found)

    _until(serves)
    url = found[0]
    new = {"name": _JOB, "sql": _SQL}
    httpx.post(f"{url}/v1/jobs", json=new, timeout=60).raise_for_status()

    def has_epochs(at_least: int) -> bool:
        progress = httpx.get(f"{url}/v1/jobs/{_JOB}", timeout=60).json()["progress"]
        return int(progress["committed_epoch"]) >= at_least

    _until(lambda: has_epochs(10))
    pid = httpx.get(f"{url}/v1/jobs/{_JOB}", timeout=60).json()["status"]["worker_pid"]
    os.kill(int(pid), signal.SIGKILL)
    incidents = f"{url}/v1/jobs/{_JOB}/incidents"
    _until(lambda: bool(httpx.get(incidents, timeout=60).json()["incidents"]))
    time.sleep(_RUN_SECONDS)
    return url


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit("the service did not get there in time")
        time.sleep(0.5)


def _photograph(url: str, target: Path, chosen: Mapping[str, Picture]) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        for name, picture in chosen.items():
            _take(browser, url, picture, target / name)
        browser.close()


def _take(browser: Browser, url: str, picture: Picture, file: Path) -> None:
    context = browser.new_context(
        viewport={"width": picture.width, "height": 860},
        color_scheme="dark" if picture.is_dark else "light",
    )
    page = context.new_page()
    page.goto(f"{url}{picture.path}")
    page.wait_for_timeout(_SETTLED)
    page.screenshot(path=file)
    context.close()
    print(file)


if __name__ == "__main__":
    main()
