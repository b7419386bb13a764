"""Queries over state in a process of their own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.state.dead_letter_files import letter, write_letters
from tests.unit.state.real_state import RealJob

from resurgence.errors import QueryStopped, UserError
from resurgence.state.inspection import query_process
from resurgence.state.inspection.query_process import confined
from resurgence.state.inspection.state_queries import (
    MOST_LETTER_BYTES,
    difference,
    query_letters,
    query_state,
)

PARTIALS = "window_7f_partials"
ENDLESS = "SELECT sum(range) FROM range(1000000000000)"


@pytest.fixture
def real(tmp_path: Path) -> RealJob:
    made = RealJob.at(str(tmp_path))
    made.run(1, 2)
    return made


def test_the_process_returns_what_the_query_finds(real: RealJob) -> None:
    sql = f"SELECT * FROM {PARTIALS}"
    found = confined(real.backend, query_state, 2, sql, 1000)
    assert found == query_state(real.backend, 2, sql, 1000)
    assert confined(real.backend, difference, PARTIALS, 1, 2, 1000).added.num_rows


def test_the_process_queries_dead_letters_up_to_a_size(real: RealJob) -> None:
    raw = b"x" * (MOST_LETTER_BYTES // 3)
    write_letters(real, *(letter(1, offset, raw) for offset in range(3)))
    sql = "SELECT raw FROM dead_letters"
    found = confined(real.backend, query_letters, sql, 1)
    assert (found.columns, found.rows, found.has_more) == (["raw"], [(raw,)], True)
    with pytest.raises(QueryStopped, match="larger than 4 MB"):
        confined(real.backend, query_letters, sql, 3)


def test_an_error_of_the_query_is_raised_as_it_is(real: RealJob) -> None:
    with pytest.raises(UserError, match="nothing does not exist") as caught:
        confined(real.backend, query_state, None, "SELECT * FROM nothing", 10)
    assert not isinstance(caught.value, QueryStopped)


def test_a_query_that_does_not_end_is_killed_and_the_next_one_runs(
    real: RealJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as short:
        short.setattr(query_process, "DEADLINE", timedelta(seconds=1))
        with pytest.raises(QueryStopped, match="did not end within 1 s"):
            confined(real.backend, query_state, None, ENDLESS, 10)
    assert confined(real.backend, query_state, None, "SELECT 1 AS one", 10).rows.num_rows == 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT list(range) FROM range(100000000)",
        "SELECT repeat('x', 1000000000) FROM range(100)",
    ],
    ids=["counted by DuckDB", "not counted by DuckDB"],
)
def test_a_query_that_needs_too_much_memory_ends_without_harm(real: RealJob, sql: str) -> None:
    with pytest.raises(UserError, match=r"(?i)memory"):
        confined(real.backend, query_state, None, sql, 200)


def test_a_query_waits_for_its_turn_for_a_while(
    real: RealJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_process, "_TURN_WITHIN", timedelta(milliseconds=100))
    started = threading.Event()
    go_on = threading.Event()

    def holds(request: object) -> query_process._Answer:
        started.set()
        go_on.wait(30)
        return query_process._Answer(request)

    monkeypatch.setattr(query_process, "_asked", holds)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(confined, real.backend, query_state, None, "SELECT 1", 10)
        assert started.wait(30)
        with pytest.raises(
            QueryStopped, match="another query over state or dead letters is running"
        ):
            confined(real.backend, query_state, None, "SELECT 2", 10)
        go_on.set()
        assert first.result(30)
