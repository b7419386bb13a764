"""Whether a process exited by itself or was killed from outside."""

from __future__ import annotations

import signal
import subprocess

import pytest

from resurgence.exit_status import killed_from_outside


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_process_that_others_end_was_killed_from_outside(number: signal.Signals) -> None:
    # Under nohup, a child would ignore SIGHUP as well.
    hang_up = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    sleeper = subprocess.Popen(["sleep", "60"])
    signal.signal(signal.SIGHUP, hang_up)
    sleeper.send_signal(number)
    status = sleeper.wait(10)
    assert status == -number
    assert killed_from_outside(status)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL])
def test_a_process_that_crashes_was_not_killed_from_outside(number: signal.Signals) -> None:
    assert not killed_from_outside(-number)


@pytest.mark.parametrize("status", [None, 0, 1, 3, 52, 127])
def test_an_exit_is_no_kill(status: int | None) -> None:
    assert not killed_from_outside(status)


def test_a_jvm_that_receives_sigterm_exits_by_itself() -> None:
    assert killed_from_outside(128 + signal.SIGTERM)
