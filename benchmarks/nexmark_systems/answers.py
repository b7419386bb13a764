"""Whether the output of a run is the answer to its query.

An answer is known by its number of rows and by the sum of a hash of each row, so neither order nor
division into files matter. A changelog is folded by the same means: a row that it retracts counts as
minus one. DuckDB computes it, which none of the systems uses. Rows of the last events are left out:
Structured Streaming never closes their windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb
from benchmarks.nexmark_systems.events import END
from benchmarks.nexmark_systems.queries import Query, System

_IDS = {"auction", "bidder", "id"}
"""Columns by which the rows of the last events are known."""


@dataclass(frozen=True)
class Answer:
    rows: int
    digest: int

    def __str__(self) -> str:
        return f"{self.rows:,} rows (digest {self.digest % 2**32:08x})"


def columns_of(folder: Path) -> dict[str, str]:
    """Return the columns of Parquet files, with the types in which answers are compared."""
    with _connection() as connection:
        described = connection.execute(f"DESCRIBE SELECT * FROM '{folder}/*.parquet'").fetchall()
    return {str(row[0]): _compared(str(row[1])) for row in described}


def _compared(kind: str) -> str:
    if kind.startswith("DECIMAL"):
        return "DOUBLE"
    return "TIMESTAMP" if kind.startswith("TIMESTAMP") else kind


def answer(query: Query, system: System, folder: Path, columns: Mapping[str, str]) -> Answer:
    """Return the answer that is in a folder of output."""
    with _connection() as connection:
        relation = _rows(query, system, folder, columns)
        listed = ", ".join(_value(name, sql) for name, sql in columns.items())
        kept = [f'"{name}" <> {END}' for name in _IDS & columns.keys()] or ["true"]
        found = connection.execute(
            f"SELECT sum(weight), sum(weight * CAST(hash({listed}) % 1000000007 AS HUGEINT))"
            f" FROM ({relation}) WHERE {' AND '.join(kept)}"
        ).fetchone()
    assert found is not None
    return Answer(int(found[0] or 0), int(found[1] or 0))


def _connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 2})


def _value(name: str, sql: str) -> str:
    """Return a column as it is compared: a timestamp, with or without time zone, as an instant."""
    if sql == "TIMESTAMP":
        return f'epoch_us("{name}")'
    return f'CAST("{name}" AS {sql})'


def _rows(query: Query, system: System, folder: Path, columns: Mapping[str, str]) -> str:
    """Return the query of the rows of an output, each with its weight."""
    files = sorted(str(each) for each in folder.rglob("*") if _is_output(each, folder))
    names = ", ".join(f'"{name}"' for name in columns)
    if not files:
        nothing = ", ".join(f'CAST(NULL AS {sql}) AS "{name}"' for name, sql in columns.items())
        return f"SELECT {nothing}, 0 AS weight WHERE false"
    if system not in query.changelogs or system is System.BATCH:
        return f"SELECT {names}, 1 AS weight FROM read_parquet({files})"
    fields = ", ".join(f"\"{name}\": '{sql}'" for name, sql in columns.items())
    if system is System.STREAMING:
        # A later micro-batch replaces the rows of its keys.
        key = ", ".join(f'"{name}"' for name in query.key)
        return f"""SELECT {names}, 1 AS weight
            FROM read_json({files}, format = 'newline_delimited', columns = {{{fields}}},
                filename = true)
            QUALIFY row_number() OVER (PARTITION BY {key}
                ORDER BY CAST(regexp_extract(filename, 'batch=([0-9]+)', 1) AS BIGINT) DESC) = 1"""
    row = ", ".join(f'"{name}" {sql}' for name, sql in columns.items())
    changes = (
        f"read_json({files}, format = 'newline_delimited', columns = {{before: 'STRUCT({row})',"
        f" after: 'STRUCT({row})'}})"
    )
    return (
        f"SELECT unnest(after), 1 AS weight FROM {changes} WHERE after IS NOT NULL"
        f" UNION ALL SELECT unnest(before), -1 AS weight FROM {changes} WHERE before IS NOT NULL"
    )


def _is_output(file: Path, folder: Path) -> bool:
    """Return whether a file has rows: systems hide theirs behind a dot or an underscore."""
    steps = file.relative_to(folder).parts
    return file.is_file() and not any(each.startswith((".", "_")) for each in steps)
