"""The pipeline has the batch answer, although its worker is killed in the middle."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import duckdb

PROJECT = Path(__file__).parent
OUTPUT = (
    "SELECT strftime(hour, '%H'), kind, rides, revenue FROM 'out/hourly/*.parquet' ORDER BY ALL"
)
BATCH = """
SELECT strftime("at"::TIMESTAMP, '%H'), kind, count(*), sum(price::DECIMAL(10, 2))
FROM read_json('data/rides.json') GROUP BY ALL ORDER BY ALL
"""


def test_no_ride_is_lost_or_counted_twice(tmp_path: Path) -> None:
    for name in ("rides.sql", "resurgence.toml"):
        shutil.copy(PROJECT / name, tmp_path)
    shutil.copytree(PROJECT / "data", tmp_path / "data")
    command = [sys.executable, "-m", "resurgence", "run", "rides.sql", "--epoch-rows", "600"]
    command += ["--set", "faults=state.written@3=kill"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "recovered" in done.stderr
    assert _rows(tmp_path, OUTPUT) == _rows(tmp_path, BATCH)


def _rows(folder: Path, query: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute(f"SET file_search_path = '{folder}'")
        return database.execute(query).fetchall()
