"""The documentation keeps its word: the picture is printed from the table, and every SQL text compiles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from resurgence.config import known_keys
from resurgence.connectors.registry import CONNECTORS
from resurgence.control.transitions import diagram
from resurgence.sql import compile_pipeline
from resurgence.testing.faults import FaultPoint
from resurgence.udf import load_functions

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```sql\n(.*?)```", page.read_text(), re.DOTALL))
]


def test_the_picture_of_the_states_is_the_one_that_the_table_prints() -> None:
    assert diagram() in (ROOT / "ARCHITECTURE.md").read_text()


@pytest.mark.parametrize("text", TEXTS)
def test_sql_in_the_docs_compiles(text: str) -> None:
    functions = {
        name: each.kind for name, each in load_functions(ROOT / "examples/udfs.py").items()
    }
    assert compile_pipeline(text, CONNECTORS, functions).sinks()


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").glob("*.sql")), ids=lambda path: path.name
)
def test_the_examples_compile(path: Path) -> None:
    functions = {
        name: each.kind for name, each in load_functions(ROOT / "examples/udfs.py").items()
    }
    assert compile_pipeline(path.read_text(), CONNECTORS, functions).sinks()


def test_every_setting_and_fault_point_is_documented() -> None:
    settings = (ROOT / "docs/settings.md").read_text()
    assert [key for key in known_keys() if f"`{key}`" not in settings] == []
    faults = (ROOT / "docs/cli.md").read_text()
    assert [point for point in FaultPoint if f"`{point}`" not in faults] == []
