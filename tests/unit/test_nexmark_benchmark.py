"""The benchmark of Nexmark compares only right answers, and goes on without what is not there."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest
from benchmarks import nexmark
from benchmarks.nexmark import Comparison, Found, WrongAnswer, check, goal_of, parser
from benchmarks.nexmark_systems import flink
from benchmarks.nexmark_systems.answers import answer, columns_of
from benchmarks.nexmark_systems.events import Events, flat_columns, view_sql
from benchmarks.nexmark_systems.queries import NAMES, Query, System, parse, read_query
from benchmarks.nexmark_systems.runs import Repetition, Run, RunFailed, execute, repetitions_of
from benchmarks.report import Report

FILE = """-- Nexmark q4: a title.
-- changelog: Resurgence, Structured Streaming
-- key: a, b
-- not Flink: it lacks a function

-- in Spark
SELECT 1
FROM bids

-- in Structured Streaming
-- A comment on the text.
SELECT 2
"""
QUERY = parse("q4", FILE, "SELECT 3")
COLUMNS = {"a": "BIGINT", "b": "VARCHAR", "moment": "TIMESTAMP"}
ROWS = [(1, "x", "2024-01-01T00:00:00.001"), (1, "x", "2024-01-01T00:00:00.001"), (2, None, None)]


def change(before: Sequence[object] | None, after: Sequence[object] | None) -> str:
    images = ("before", before), ("after", after)
    return json.dumps(
        {name: each and dict(zip(COLUMNS, each, strict=True)) for name, each in images}
    )


def written(folder: Path, rows: Sequence[Sequence[object]]) -> Path:
    """Write rows as Parquet."""
    folder.mkdir()
    made = duckdb.connect()
    made.execute("CREATE TABLE written (a INTEGER, b VARCHAR, moment TIMESTAMP)")
    made.executemany("INSERT INTO written VALUES (?, ?, ?)", rows)
    made.execute(f"COPY written TO '{folder}/0.parquet'")
    return folder


def test_a_file_has_a_text_or_a_reason_for_each_system() -> None:
    assert QUERY.texts == {
        System.RESURGENCE: "SELECT 3",
        System.STREAMING: "-- A comment on the text.\nSELECT 2",
        System.BATCH: "SELECT 1\nFROM bids",
    }
    assert QUERY.reasons == {System.FLINK: "it lacks a function"}
    assert QUERY.changelogs == {System.RESURGENCE, System.STREAMING}
    assert QUERY.key == ("a", "b")


@pytest.mark.parametrize("name", NAMES)
def test_every_query_has_a_text_or_a_reason_for_each_system(name: str) -> None:
    query = read_query(name)
    assert set(query.texts) | set(query.reasons) == set(System)
    assert all(query.texts.values())
    assert not set(query.texts) & set(query.reasons)
    assert {System.RESURGENCE, System.BATCH} <= set(query.texts)
    # Updates of Structured Streaming can be folded by their key only.
    assert (System.STREAMING in query.changelogs) == bool(query.key)


def test_views_have_the_columns_of_the_files() -> None:
    assert "bid_price AS `price`" in view_sql("bids")
    assert view_sql("people").endswith("WHERE person_id IS NOT NULL")
    assert [*flat_columns()][-1] == "timestamp"
    assert "bid_datetime" not in flat_columns()


def test_an_answer_does_not_depend_on_order_and_files(tmp_path: Path) -> None:
    one = written(tmp_path / "one", ROWS)
    assert columns_of(one) == {"a": "INTEGER", "b": "VARCHAR", "moment": "TIMESTAMP"}
    two = written(tmp_path / "two", ROWS[::-1])
    found = answer(QUERY, System.BATCH, one, COLUMNS)
    assert found.rows == 3
    assert answer(QUERY, System.BATCH, two, COLUMNS) == found


@pytest.mark.parametrize(
    "rows",
    [
        ROWS[1:],
        [*ROWS, ROWS[0]],
        [ROWS[0], ROWS[2], ROWS[2]],
        [*ROWS[:2], (2, "x", None)],
        [(1, "x", "2024-01-01T00:00:00.002"), *ROWS[1:]],
    ],
    ids=["lost", "doubled", "exchanged", "changed", "later"],
)
def test_a_wrong_row_is_another_answer(
    tmp_path: Path, rows: list[tuple[int, str | None, str | None]]
) -> None:
    expected = answer(QUERY, System.BATCH, written(tmp_path / "right", ROWS), COLUMNS)
    folder = written(tmp_path / "wrong", rows)
    repetitions = [Repetition(1, 1, str(folder), is_warm=True)]
    with pytest.raises(WrongAnswer, match="instead of 3 rows"):
        check(QUERY, System.BATCH, repetitions, COLUMNS, expected)


def test_a_changelog_is_folded(tmp_path: Path) -> None:
    expected = answer(QUERY, System.BATCH, written(tmp_path / "rows", ROWS), COLUMNS)
    old = (7, "old", "2024-01-01T00:00:00")
    folder = tmp_path / "changes"
    folder.mkdir()
    lines = [change(None, old), change(None, ROWS[0]), change(old, ROWS[1]), change(None, ROWS[2])]
    (folder / "part-0").write_text("\n".join(lines[2:]) + "\n")
    (folder / "part-1").write_text("\n".join(lines[:2]) + "\n")
    (folder / ".part-2.inprogress").write_text(change(None, old) + "\n")
    assert answer(QUERY, System.RESURGENCE, folder, COLUMNS) == expected
    (folder / "part-2").write_text(change(ROWS[2], None) + "\n")
    assert answer(QUERY, System.RESURGENCE, folder, COLUMNS).rows == 2


def test_a_later_micro_batch_replaces_the_rows_of_its_keys(tmp_path: Path) -> None:
    rows = [ROWS[0], ROWS[2]]
    expected = answer(QUERY, System.BATCH, written(tmp_path / "rows", rows), COLUMNS)
    for batch, row in ((10, ROWS[0]), (9, (1, "x", None)), (2, ROWS[2])):
        folder = tmp_path / "out" / f"batch={batch}"
        folder.mkdir(parents=True)
        (folder / "part-0.json").write_text(json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n")
    assert answer(QUERY, System.STREAMING, tmp_path / "out", COLUMNS) == expected


def test_no_output_is_no_rows(tmp_path: Path) -> None:
    assert answer(QUERY, System.RESURGENCE, tmp_path, COLUMNS).rows == 0


def test_repetitions_are_found_among_other_lines(capsys: pytest.CaptureFixture[str]) -> None:
    Repetition(1.5, 2.5, "out", is_warm=True, variant="RocksDB").print()
    printed = f"a warning\n{capsys.readouterr().out}the end\n"
    assert repetitions_of(printed) == [Repetition(1.5, 2.5, "out", is_warm=True, variant="RocksDB")]


def test_a_run_is_passed_to_its_process(tmp_path: Path) -> None:
    run = Run(System.STREAMING, "q5", Events(100, 10), tmp_path, 3)
    assert Run.from_json(run.as_json()) == run


def test_a_process_has_a_deadline() -> None:
    with pytest.raises(RunFailed, match="no result within 1 s"):
        execute([sys.executable, "-c", "import time; time.sleep(600)"], 1)


def test_a_failed_process_has_a_reason() -> None:
    with pytest.raises(RunFailed, match="of its own"):
        execute([sys.executable, "-c", "raise SystemExit('a reason of its own')"], 60)


def test_without_flink_the_others_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unavailable() -> Path:
        raise RunFailed("Flink cannot be installed: no network")

    monkeypatch.setenv("RESURGENCE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(flink, "installed", unavailable)
    options = parser().parse_args(["--rows", "100", "--systems", "streaming,flink"])
    Events(100, options.epoch_rows).folder.mkdir(parents=True)
    comparison = Comparison(options, tmp_path)
    comparison.prepare()
    assert comparison.systems == [System.STREAMING]
    assert "without Flink: Flink cannot be installed: no network" in capsys.readouterr().out


def test_queries_and_systems_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert parser().parse_args(["--queries", "q5,q0"]).queries == ["q0", "q5"]
    with pytest.raises(SystemExit):
        parser().parse_args(["--queries", "q23"])
    assert "q23 is none of q0" in capsys.readouterr().err


def test_goals_differ_by_state() -> None:
    stateless, stateful = read_query("q0"), read_query("q5")
    assert goal_of(stateless, System.STREAMING).bound == 1.2
    assert goal_of(stateful, System.STREAMING).bound == 3
    assert goal_of(stateful, System.FLINK).bound == 1
    assert goal_of(stateful, System.BATCH).bound == 0.5


def test_ratios_are_of_systems_that_have_both_figures() -> None:
    def found(query: Query, **rates: float) -> Found:
        return Found(query, {System[name.upper()]: [rate] for name, rate in rates.items()})

    report = Report("nexmark", parser().parse_args([]))
    queries = [
        found(read_query("q0"), resurgence=300, flink=100, batch=600),
        found(read_query("q5"), resurgence=100, flink=100),
        found(read_query("q6"), resurgence=100, batch=100),
    ]
    nexmark.compare(report, queries, [System.RESURGENCE, System.FLINK, System.BATCH])
    assert {each.name: each.spread.median for each in report.ratios} == {
        "q0, over Flink": 3,
        "q5, over Flink": 1,
        "median of the queries, over Flink": 2,
        "q0, over batch": 0.5,
        "q6, over batch": 1,
        "median of the queries, over batch": 0.75,
    }
    assert all(each.is_met for each in report.ratios)
