"""`resurgence state`: tables, schema, query."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Cli
from tests.unit.state.real_state import RealJob

from resurgence.cli.output.query_rows import MAX_TABLE_ROWS

SUM = "SELECT window_start, sum(a0) AS total FROM window_7f_partials GROUP BY 1 ORDER BY 1 LIMIT 2"
"""Epoch 1 has bins 1 and 2, epoch 2 has 2 and 3, and so on."""


def test_tables_are_listed_under_names_that_are_easy_to_type(cli: Cli, real: RealJob) -> None:
    done = cli("state", "tables")
    assert done.status == 0
    first, header, *lines = done.out.splitlines()
    assert first == "state after epoch 3"
    assert header.split() == ["table", "operator", "kind", "rows", "files", "size"]
    assert [line.split()[0] for line in lines] == [
        "source_rides_offsets",
        "window_7f_partials",
        "sink_hourly_staged",
        "checkpoints",
    ]
    assert lines[1].split()[1:5] == ["window-7f", "time", "300", "3"]
    assert json.loads(cli("state", "tables", "--epoch", "1", "--json").out)["epoch"] == 1


def test_schema_of_one_table_or_all(cli: Cli, real: RealJob) -> None:
    one = cli("state", "schema", "window_7f_partials").out.splitlines()
    assert [line.split()[1] for line in one[1:]] == ["window_start", "bin", "k0", "a0", "a1_sum"]
    every = cli("state", "schema").out.splitlines()
    assert len({line.split()[0] for line in every[1:]}) == 4
    wrong = cli("state", "schema", "window_7f_partial")
    assert wrong.status == 2
    assert "Perhaps you meant 'window_7f_partials'." in wrong.err


def test_a_query_is_answered_as_a_table_json_and_csv(cli: Cli, real: RealJob) -> None:
    totals = [sum(1000 + key for key in range(50)), sum(3000 + 2 * key for key in range(50))]
    lines = cli("state", "query", SUM).out.splitlines()
    assert lines[0].split() == ["window_start", "total"]
    assert lines[1].split() == ["1970-01-01", "00:01:00", str(totals[0])]
    answer = [
        json.loads(line) for line in cli("state", "query", SUM, "--format", "json").out.splitlines()
    ]
    assert answer == [
        {"window_start": "1970-01-01T00:01:00", "total": totals[0]},
        {"window_start": "1970-01-01T00:02:00", "total": totals[1]},
    ]
    read = list(csv.reader(io.StringIO(cli("state", "query", SUM, "--format", "csv").out)))
    assert read == [
        ["window_start", "total"],
        ["1970-01-01T00:01:00", str(totals[0])],
        ["1970-01-01T00:02:00", str(totals[1])],
    ]


def test_an_older_checkpoint_can_be_queried(cli: Cli, real: RealJob) -> None:
    count = "SELECT count(*) AS n FROM window_7f_partials"
    for epoch, rows in ((1, 100), (2, 200), (3, 300)):
        out = cli("state", "query", count, "--epoch", str(epoch), "--format", "json").out
        assert json.loads(out) == {"n": rows}


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("NULL", None),
        ("'NaN'::DOUBLE", "nan"),
        ("12.30::DECIMAL(5,2)", "12.30"),
        ("'ab'::BLOB", "6162"),
        ("DATE '2024-01-02'", "2024-01-02"),
        ("TIMESTAMPTZ '2024-01-02 00:00:00+00'", "2024-01-02T00:00:00+00:00"),
        ("[1, NULL]", [1, None]),
        ("{'a': TRUE}", {"a": True}),
        ("MAP {1: 'x'}", {"1": "x"}),
        ("'ä'", "ä"),
    ],
)
def test_every_value_has_a_form_in_json(
    cli: Cli, real: RealJob, expression: str, shown: object
) -> None:
    done = cli("state", "query", f"SELECT {expression} AS x", "--format", "json")
    assert json.loads(done.out) == {"x": shown}
    for layout in ("table", "csv"):
        assert cli("state", "query", f"SELECT {expression} AS x", "--format", layout).status == 0


def test_columns_of_the_same_name_are_all_shown(cli: Cli, real: RealJob) -> None:
    done = cli("state", "query", "SELECT 1 AS a, 2 AS a", "--format", "json")
    assert list(json.loads(done.out).values()) == [1, 2]


def test_a_long_answer_is_truncated_on_the_screen_only(cli: Cli, real: RealJob) -> None:
    sql = f"SELECT * FROM range({MAX_TABLE_ROWS + 1})"
    shown = cli("state", "query", sql)
    assert len(shown.out.splitlines()) == MAX_TABLE_ROWS + 1
    assert "only the first 1,000 rows" in shown.err
    assert len(cli("state", "query", sql, "--format", "csv").out.splitlines()) == MAX_TABLE_ROWS + 2
    assert cli("state", "query", f"SELECT * FROM range({MAX_TABLE_ROWS})").err == ""


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELEC", "error: Parser Error: syntax error"),
        ("FROM checkpoint", "Perhaps you meant 'checkpoints'."),
        ("COPY (SELECT 1) TO '{folder}/x'", "the statement is not a single SELECT"),
        ("FROM read_text('{folder}/secret')", "error: Permission Error"),
    ],
)
def test_an_invalid_query_is_bad_usage(
    cli: Cli, real: RealJob, tmp_path: Path, sql: str, message: str
) -> None:
    (tmp_path / "secret").write_text("s3cret")
    done = cli("state", "query", sql.format(folder=tmp_path))
    assert done.status == 2
    assert message in done.err
    assert "s3cret" not in done.out
    assert not (tmp_path / "x").exists()
    assert len(done.err.splitlines()) <= 2


def test_a_missing_state_file_is_a_failure(cli: Cli, real: RealJob) -> None:
    real.path(real.files[0].path).unlink()
    done = cli("state", "query", "FROM window_7f_partials", "--epoch", "3")
    assert done.status == 1
    assert "checkpoints verify" in done.err


def test_the_command_line_starts_without_duckdb(real: RealJob) -> None:
    code = "import sys, resurgence.cli.app; print('duckdb' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"
