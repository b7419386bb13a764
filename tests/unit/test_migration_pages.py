"""The pages for those who come from another system: everything in the column of Resurgence is valid."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from resurgence.cli.app import app
from resurgence.connectors.registry import CONNECTORS
from resurgence.sql import compile_pipeline

PAGES = sorted((Path(__file__).parents[2] / "docs").glob("coming_from_*.md"))
_ROW = re.compile(r"^\|(?P<cells>.*)\|$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
_STATEMENT = re.compile(r"(SELECT|INSERT|CREATE|SET|EXECUTE|WITH)\b")


def examples(page: Path) -> list[str]:
    """The code in the last column of the tables."""
    rows = [re.split(r"(?<!\\)\|", each["cells"]) for each in _ROW.finditer(page.read_text())]
    assert all(len(row) == 3 for row in rows)
    return [code.replace("\\|", "|") for row in rows for code in _CODE.findall(row[-1])]


CODE = [
    pytest.param(page, code, id=f"{page.stem}: {code}") for page in PAGES for code in examples(page)
]


@pytest.mark.parametrize(("page", "code"), CODE)
def test_an_example_is_valid(
    page: Path, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if code.startswith("resurgence "):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "rides.sql").touch()
        (tmp_path / "functions.py").touch()
        _, *words = shlex.split(code)
        root: Any = typer.main.get_command(app)
        command = root
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        command.make_context(code, words)
        return
    assert _STATEMENT.match(code), "SQL or a command"
    declared = re.findall(r"```sql\n(.*?)```", page.read_text(), re.DOTALL)[0]
    assert compile_pipeline(f"{declared}\n{code}", CONNECTORS, {}).sinks()


def test_there_is_a_page_for_each_system_with_tables_side_by_side() -> None:
    assert [each.stem for each in PAGES] == [
        "coming_from_arroyo",
        "coming_from_flink_sql",
        "coming_from_structured_streaming",
    ]
    assert all("| Resurgence |" in each.read_text() for each in PAGES)
