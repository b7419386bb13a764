"""The demo kills the worker when a standby can take over, and shows where the console is."""

from __future__ import annotations

from typing import Any

from resurgence.cli.commands import demo
from resurgence.connectors.registry import CONNECTORS
from resurgence.sql import compile_pipeline

STANDBY: dict[str, Any] = {"event": "standby_ready", "pid": 1}


def epochs(count: int, rows: int = 1) -> list[dict[str, Any]]:
    return [
        event
        for epoch in range(1, count + 1)
        for event in (
            {"event": "checkpoint", "epoch": epoch, "rows": rows},
            {"event": "committed", "epoch": epoch},
        )
    ]


def test_the_worker_is_killed_after_some_epochs_once_the_standby_is_warm() -> None:
    enough = demo.KILL_AFTER_EPOCH
    assert not demo.is_time_to_kill([STANDBY])
    assert not demo.is_time_to_kill([STANDBY, *epochs(enough - 1)])
    assert not demo.is_time_to_kill(epochs(enough))
    assert demo.is_time_to_kill([STANDBY, *epochs(enough)])


def test_the_worker_is_killed_before_the_stream_ends_also_without_a_standby() -> None:
    rows = int(demo.RIDES * demo.KILL_AT_THE_LATEST / demo.KILL_AFTER_EPOCH) + 1
    assert demo.is_time_to_kill(epochs(demo.KILL_AFTER_EPOCH, rows))


def test_the_pipeline_of_the_demo_compiles() -> None:
    assert compile_pipeline(demo.SQL, CONNECTORS, {}).sinks()


def test_the_address_of_the_console_is_found_in_what_the_run_prints() -> None:
    log = "2024 worker started\nconsole: http://127.0.0.1:7070/#/jobs/rides\nmore"
    assert demo.console_address(log) == "http://127.0.0.1:7070/#/jobs/rides"
    assert demo.console_address("worker started on spark://127.0.0.1:4040") is None
    assert "--ui" in demo.command(has_console=True)
    assert "--ui" not in demo.command(has_console=False)
