"""The loop around the commit of an epoch: conflicts, lost answers, zombies, deadlines."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from resurgence.connectors.delta.writing.transactions import Attempts
from resurgence.errors import SinkError


class Taken(Exception):
    """The next version exists."""


class Lost(Exception):
    """The answer was lost."""


@dataclass
class Log:
    """A table: the epoch of each version, None if others committed it."""

    versions: list[int | None] = field(default_factory=list)

    def put(self, version: int, epoch: int | None) -> None:
        if version != len(self.versions):
            raise Taken
        self.versions.append(epoch)


@dataclass
class Handle:
    """A process's view of the table."""

    log: Log
    version: int = 0

    def __post_init__(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        self.version = len(self.log.versions)

    def newest_epoch(self, application: str) -> int:
        assert application == "app"
        return max((each or 0 for each in self.log.versions[: self.version]), default=0)


@dataclass
class Clock:
    now: float = 0.0
    pauses: list[float] = field(default_factory=list)

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def attempts(clock: Clock) -> Attempts:
    return Attempts(
        lambda: clock.now,
        clock.pause,
        is_conflict=lambda error: isinstance(error, Taken),
        is_unknown=lambda error: isinstance(error, Taken | Lost),
        deadline=timedelta(seconds=30),
    )


def test_an_epoch_that_the_table_names_is_not_attempted(clock: Clock) -> None:
    handle = Handle(Log([3, None]))
    attempts(clock).commit(handle, "app", 3, lambda: pytest.fail("attempted"))
    attempts(clock).commit(handle, "app", 2, lambda: pytest.fail("attempted"))


def test_a_commit_is_repeated_on_the_version_of_others(clock: Clock) -> None:
    log = Log([1])
    handle = Handle(log)
    seen: list[int] = []

    def attempt() -> None:
        seen.append(handle.version)
        if len(seen) < 3:
            log.put(len(log.versions), None)
        log.put(handle.version, 2)

    attempts(clock).commit(handle, "app", 2, attempt)
    assert log.versions == [1, None, None, 2]
    assert seen == [1, 2, 3]
    assert clock.pauses == [0.02, 0.04]


def test_a_zombie_that_was_first_ends_the_attempts(clock: Clock) -> None:
    log = Log()
    handle = Handle(log)

    def attempt() -> None:
        log.put(0, 1)
        log.put(handle.version, 1)

    attempts(clock).commit(handle, "app", 1, attempt)
    assert log.versions == [1]


def test_a_lost_answer_of_a_commit_that_succeeded_is_success(clock: Clock) -> None:
    log = Log()
    handle = Handle(log)

    def attempt() -> None:
        log.put(handle.version, 1)
        raise Lost

    attempts(clock).commit(handle, "app", 1, attempt)
    assert log.versions == [1]


def test_a_lost_answer_of_a_commit_that_failed_is_an_error(clock: Clock) -> None:
    def attempt() -> None:
        raise Lost("reset by peer")

    with pytest.raises(SinkError, match="epoch 1 could not be committed: reset by peer"):
        attempts(clock).commit(Handle(Log()), "app", 1, attempt)


def test_any_error_of_an_attempt_is_over_once_another_process_has_committed(clock: Clock) -> None:
    log = Log()

    def attempt() -> None:
        log.put(0, 1)
        raise KeyError("the staged rows are gone")

    attempts(clock).commit(Handle(log), "app", 1, attempt)


def test_other_errors_are_passed_on(clock: Clock) -> None:
    def attempt() -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        attempts(clock).commit(Handle(Log()), "app", 1, attempt)


def test_conflicts_end_at_the_deadline(clock: Clock) -> None:
    def attempt() -> None:
        raise Taken("conflict")

    with pytest.raises(SinkError, match="could not be committed"):
        attempts(clock).commit(Handle(Log()), "app", 1, attempt)
    assert 30 < sum(clock.pauses) < 35
    assert max(clock.pauses) == 2.0
