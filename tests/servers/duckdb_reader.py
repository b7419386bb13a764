"""DuckDB as a reader of lakehouse tables.

Its extensions fit one version of DuckDB. There is none on PyPI for the version that the project
depends on, so this is an older one, in a folder and a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.servers.builds import python_packages

_VERSION = "1.5.5"
_EXTENSIONS = ("avro", "delta", "iceberg")
"""In the order of their dependencies."""
_READ = """
import json, sys
import duckdb
connection = duckdb.connect()
for path in sys.argv[2:]:
    connection.execute(f"LOAD '{path}'")
print(json.dumps(connection.execute(sys.argv[1]).fetchall()))
"""


def build() -> Path:
    """Install DuckDB and its extensions; return their folder."""
    names = ["duckdb", *(f"duckdb-extension-{each}" for each in _EXTENSIONS)]
    return python_packages("duckdb", [f"{each}=={_VERSION}" for each in names])


def rows(query: str) -> list[list[object]]:
    """The rows of a query, in which `delta_scan` and `iceberg_scan` can be used."""
    folder = build()
    extensions = [
        str(folder / f"duckdb_extension_{each}/extensions/v{_VERSION}/{each}.duckdb_extension")
        for each in _EXTENSIONS
    ]
    done = subprocess.run(
        [sys.executable, "-c", _READ, query, *extensions],
        env={"PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    found: list[list[object]] = json.loads(done.stdout)
    return found
