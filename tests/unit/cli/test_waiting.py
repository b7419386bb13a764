"""A wait is shown: as lines where there is no terminal, live on one."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from resurgence.cli.output.console import ERROR_CONSOLE, ProgressLine, describe
from resurgence.cli.output.waiting import Wait, waiting
from resurgence.control.telemetry.events import Event


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)


def test_a_wait_says_what_it_does_how_far_it_is_and_for_how_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    wait = Wait("reading")
    clock.now += 7
    assert wait.text() == "reading (7 s)"
    wait.step(2_000, 3_000)
    assert wait.text() == "reading, 2,000 of 3,000 (7 s)"
    console = Console(file=io.StringIO(), width=100)
    console.print(wait)
    assert "reading, 2,000 of 3,000 (7 s)" in str(console.file.getvalue())  # type: ignore[attr-defined]


def test_without_a_terminal_a_line_is_printed_for_each_step_and_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    with waiting("preparing") as wait:
        wait.now("downloading")
        for seconds in range(25):
            clock.now = 100.0 + seconds
            wait.step(seconds)
    assert capsys.readouterr().err.splitlines() == [
        "downloading",
        "downloading, 10 (10 s)",
        "downloading, 20 (20 s)",
    ]
    assert ERROR_CONSOLE.stderr


def test_the_view_of_a_run_counts_the_seconds_until_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    progress = ProgressLine("rides")
    progress.note({"event": "state", "to": "Scheduling"})
    clock.now += 5
    assert progress.state_text() == "Scheduling (5 s)"
    progress.note({"event": "state", "to": "Running"})
    assert progress.state_text() == "Running"


def replay_of(epoch: int, first: int, last: int) -> Event:
    return {"event": "replay_started", "epoch": epoch, "first": first, "last": last, "rows": 1200}


def test_a_replay_says_which_epochs_it_has() -> None:
    assert describe(replay_of(13, 12, 18)) == "replaying epoch 13 of 12-18: 1,200 rows"
    assert describe(replay_of(12, 12, 12)) == "replaying epoch 12: 1,200 rows"


@pytest.mark.parametrize(
    ("ended", "then"),
    [
        ({"event": "state", "to": "Failing"}, "Failing (0 s)"),
        (
            {
                **{"event": "checkpoint", "epoch": 13, "rows": 1200, "duration": 7.0},
                **{"watermark": 0, "state_bytes": 0, "bad": 0, "late": 0},
            },
            "Running",
        ),
    ],
    ids=["failed", "sealed"],
)
def test_the_view_of_a_run_counts_the_seconds_of_a_replay_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, ended: Event, then: str
) -> None:
    clock = Clock(monkeypatch)
    progress = ProgressLine("rides")
    progress.note({"event": "state", "to": "Running"})
    progress.note(replay_of(13, 12, 18))
    clock.now += 7
    assert progress.state_text() == "Running, replaying epoch 13 of 12-18 (7 s)"
    progress.note(ended)
    assert progress.state_text() == then
