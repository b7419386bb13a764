"""The console in a real browser, over a real service with a real worker: one service and one job
for all tests, in their order.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.integration.test_service import Service
from tests.servers.builds import NoServer
from tests.servers.chromium import FLAGS, chromium

DEADLINE_SECONDS = 280.0
SOON = 60_000.0
"""Milliseconds. Pages answer at once, but the machine may be busy."""
LATER = DEADLINE_SECONDS * 1000
"""For what a worker has to do first."""
NAME = "orders"
SQL = """\
CREATE TABLE orders (at TIMESTAMP NOT NULL, customer BIGINT, WATERMARK FOR at AS at)
WITH (connector = 'filesystem', path = 'in', format = 'json', type = 'source', bad_data = 'dead_letter');
CREATE TABLE copies (at TIMESTAMP, customer BIGINT)
WITH (connector = 'filesystem', path = 'out', format = 'json', type = 'sink');
INSERT INTO copies SELECT at, customer FROM orders;
"""
pytestmark = pytest.mark.timeout(600)
expect.set_options(timeout=SOON)


@dataclass
class Console:
    """A service, its keys, and a browser."""

    service: Service
    browser: Browser
    keys: dict[str, str]

    def open(self, path: str, key: str = "ops", width: int = 1280) -> Page:
        """A page of a new session."""
        page = self.browser.new_context(viewport={"width": width, "height": 900}).new_page()
        page.set_default_timeout(SOON)
        page.goto(f"{self.service.url}{path}")
        page.get_by_label("API key").fill(self.keys[key])
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"{self.service.url}{path}")
        return page

    def worker_pid(self) -> int | None:
        found = httpx.get(
            f"{self.service.url}/v1/jobs/{NAME}",
            headers={"Authorization": f"Bearer {self.keys['ops']}"},
            timeout=60,
        )
        pid = found.raise_for_status().json()["status"]["worker_pid"]
        return int(pid) if pid is not None else None

    def outputs(self, text: str) -> set[Path]:
        """The files that the job has written with a text."""
        found = set()
        for each in (self.service.folder / "out").rglob("*.json"):
            # It may be retracted meanwhile.
            with contextlib.suppress(FileNotFoundError):
                if text in each.read_text():
                    found.add(each)
        return found

    def write_input(self, name: str, *lines: str) -> None:
        """A file that appears complete, whenever the job looks."""
        fresh = self.service.folder / f"{name}.tmp"
        fresh.write_text("".join(f"{each}\n" for each in lines))
        fresh.rename(self.service.folder / "in" / name)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    try:
        program = chromium()
    except NoServer as error:
        pytest.skip(f"no Chromium: {error}")
    folder = tmp_path_factory.mktemp("console")
    (folder / "in").mkdir()
    keys = {}
    for name, role in (("ops", "write"), ("viewer", "read")):
        command = [sys.executable, "-m", "resurgence", "keys", "create", name, "--role", role]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
        found = re.search(rf"rsg_{name}_\S+", done.stdout + done.stderr)
        assert found, done
        keys[name] = found[0]
    service = Service(folder)
    service.start()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
            yield Console(service, browser, keys)
            browser.close()
    finally:
        assert service.process is not None
        service.process.terminate()
        service.process.wait(DEADLINE_SECONDS)


@pytest.fixture(scope="module")
def job(console: Console) -> str:
    """Created from the editor, by keyboard, and running."""
    day = "2026-01-01T00:00:0"
    console.write_input("1.json", f'{{"at": "{day}1", "customer": 1}}', "not JSON")
    page = console.open("/new")
    page.get_by_label("Name of the job").fill(NAME)
    editor = page.locator(".cm-content").first
    editor.click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(SQL.replace("FROM orders;", "FROM order_s;"))
    problem = page.locator("[data-problem]")
    expect(problem).to_contain_text("order_s")
    expect(page.locator(".rsg-error")).to_have_text("order_s")
    # The mark goes with the text, and comes again with the same one.
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(SQL.replace("FROM orders;", "FROM order_s;"))
    expect(page.locator(".rsg-error")).to_have_text("order_s")
    page.keyboard.press("Control+End")
    page.keyboard.type("SELECT cust")
    expect(page.locator(".cm-tooltip-autocomplete")).to_contain_text("customer")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(SQL)
    expect(problem).to_have_count(0)
    expect(page.locator("[data-operator='sink-copies']")).to_be_visible()
    page.get_by_role("button", name="Create and start").click()
    page.wait_for_url(f"{console.service.url}/jobs/{NAME}")
    expect(page.locator(".state").first).to_have_text("Running", timeout=LATER)
    page.context.close()
    return NAME


def test_a_job_from_the_editor_runs_and_its_page_follows_it(console: Console, job: str) -> None:
    page = console.open(f"/jobs/{job}")
    expect(page.locator("[data-operator='source-orders']")).to_contain_text("2 in", timeout=LATER)
    expect(page.locator(".charts canvas")).to_have_count(5)
    page.goto(f"{console.service.url}/")
    row = page.locator(f"tr[data-key='{job}']")
    expect(row).to_contain_text("Running")
    page.context.close()


def test_the_incident_of_a_killed_worker_appears_and_closes(console: Console, job: str) -> None:
    page = console.open(f"/jobs/{job}/incidents")
    expect(page.get_by_text("No incidents.")).to_be_visible()
    pid = console.worker_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    incident = page.locator("[data-incident]")
    expect(incident).to_contain_text("Worker exited", timeout=LATER)
    expect(incident).to_contain_text("generations 1")
    # It closes with the first commit, which needs rows.
    deadline = time.monotonic() + DEADLINE_SECONDS
    while console.worker_pid() in (None, pid):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    console.write_input("2.json", '{"at": "2026-01-01T00:00:02", "customer": 2}')
    expect(incident).to_contain_text("recovered in", timeout=LATER)
    expect(incident).to_contain_text("First commit")
    page.context.close()


def test_a_dead_letter_is_corrected_and_replayed(console: Console, job: str) -> None:
    page = console.open(f"/jobs/{job}/dead-letters")
    letter = page.locator("tr[data-letter]")
    expect(letter).to_have_count(1)
    letter.get_by_text("Raw record").click()
    expect(letter.locator("pre")).to_have_text("not JSON")
    # A newer one is listed above it, and what was opened stays open.
    console.write_input("letters.json", "not JSON, either")
    letters = letter
    expect(letters).to_have_count(2, timeout=LATER)
    expect(letters.nth(0).locator("pre")).to_be_hidden()
    expect(letters.nth(1).locator("pre")).to_be_visible()
    letter = letters.nth(1)
    letter.get_by_role("button", name="Replay…").click()
    page.get_by_label("Record").fill('{"at": "2026-01-01T00:00:03", "customer": 3}')
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(letter).to_contain_text("replay requested")
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not console.outputs('"customer":3'):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    page.context.close()


def focus_by_keyboard(page: Page, text: str) -> None:
    """Press Tab until something with a text has the focus."""
    passed = []
    for _ in range(100):
        page.keyboard.press("Tab")
        passed.append(page.evaluate("document.activeElement.textContent.trim()"))
        if passed[-1] == text:
            return
    pytest.fail(f"Tab does not lead to '{text}', only to {passed}")


def test_a_checkpoint_is_verified_by_keyboard_alone(console: Console, job: str) -> None:
    page = console.browser.new_context().new_page()
    page.set_default_timeout(SOON)
    page.goto(console.service.url)
    page.keyboard.type(console.keys["ops"])
    page.keyboard.press("Enter")
    expect(page.locator(f"tr[data-key='{job}']")).to_be_visible()
    focus_by_keyboard(page, job)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{console.service.url}/jobs/{job}")
    expect(page.locator(".tabs")).to_be_visible()
    focus_by_keyboard(page, "Checkpoints")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{console.service.url}/jobs/{job}/checkpoints")
    expect(page.locator("tr[data-epoch='1']")).to_be_visible()
    focus_by_keyboard(page, "Verify")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("is intact")
    focus_by_keyboard(page, "Close")
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    page.context.close()


def test_escape_and_tab_leave_an_editor(console: Console, job: str) -> None:
    page = console.open(f"/jobs/{job}/sql")
    editor = page.locator(".cm-content").first
    editor.click()
    page.keyboard.press("Tab")
    expect(editor).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(editor).not_to_be_focused()
    page.context.close()


def test_a_large_graph_can_be_fitted_to_the_width_of_a_phone(console: Console, job: str) -> None:
    page = console.open(f"/jobs/{job}", width=390)
    picture = page.locator(".graph svg")
    expect(picture).to_be_visible()
    assert picture.bounding_box()["width"] > 390  # type: ignore[index]
    page.get_by_label("Fit to the width").check()
    assert picture.bounding_box()["width"] < 390  # type: ignore[index]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.context.close()


def test_a_rollback_shows_its_dry_run_first(console: Console, job: str) -> None:
    page = console.open(f"/jobs/{job}/checkpoints")
    first = page.locator("tr[data-epoch='1']")
    first.get_by_role("button", name="Roll back…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Undoes epoch")
    expect(dialog).to_contain_text("retracts them")
    retracted = console.outputs('"customer":2')
    assert retracted
    dialog.get_by_role("button", name="Roll back", exact=True).click()
    page.goto(f"{console.service.url}/jobs/{job}/events")
    # A refused rollback names its epoch, too.
    done = page.locator("tr", has=page.get_by_role("cell", name="rollback", exact=True))
    expect(done).to_contain_text("to epoch: 1 · highest epoch:", timeout=LATER)
    # The epochs after the first one are computed again, into other files.
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (found := console.outputs('"customer":2')) & retracted or not found:
        assert time.monotonic() < deadline, found
        time.sleep(0.5)
    assert len(found) == 1
    page.context.close()


def test_a_read_only_key_sees_everything_and_changes_nothing(console: Console, job: str) -> None:
    page = console.open(f"/jobs/{job}", key="viewer")
    expect(page.get_by_text("read only")).to_be_visible()
    expect(page.locator("[data-operator='source-orders']")).to_be_visible()
    for name in ("Stop", "Start", "Restart", "Rescale", "Delete"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    found = page.locator("section", has_text="Query").locator("table, [role=alert]")
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        page.goto(f"{console.service.url}/jobs/{job}/state")
        page.get_by_role("button", name="Run query").click()
        expect(found).to_be_visible()
        # For ten seconds the page may name an epoch that was rolled back.
        if "there is no checkpoint" not in found.inner_text():
            break
        assert time.monotonic() < deadline
    expect(found.locator("tbody")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("API key")).to_be_visible()
    page.context.close()


def test_pages_fit_a_phone_and_a_dark_theme(console: Console, job: str) -> None:
    page = console.open("/", width=390)
    for path in ("/", f"/jobs/{job}", f"/jobs/{job}/checkpoints", f"/jobs/{job}/sql", "/events"):
        page.goto(f"{console.service.url}{path}")
        expect(page.locator("main > *").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.get_by_role("button", name=re.compile("^Theme")).click()
    expect(page.locator("html[data-theme='dark']")).to_have_count(1)
    page.context.close()


def test_the_pages_of_a_removed_key_are_closed(console: Console, job: str) -> None:
    page = console.open(f"/jobs/{job}", key="viewer")
    command = [sys.executable, "-m", "resurgence", "keys", "remove", "viewer"]
    subprocess.run(command, cwd=console.service.folder, check=True, timeout=120)
    expect(page.get_by_label("API key")).to_be_visible()
    page.context.close()


def test_a_preview_has_rows_of_the_real_source(console: Console, job: str) -> None:
    page = console.open(f"/jobs/{job}/sql")
    page.get_by_label("Query to preview").fill("SELECT customer + 40 AS answer FROM orders")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("[data-preview]")).to_contain_text("answer", timeout=LATER)
    expect(page.locator("[data-preview]")).to_contain_text("42")
    page.context.close()
