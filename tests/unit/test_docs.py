"""The documentation matches the code: the diagram is printed from the table, and every SQL text
compiles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.unit.api.simulated_service import SimulatedController

from resurgence.api.access.guard import Guard
from resurgence.api.access.key_ring import KeyRing
from resurgence.api.app import make_app
from resurgence.cli.app import app
from resurgence.config import known_keys
from resurgence.connectors.formats.registry import FORMATS
from resurgence.connectors.option_tables import documented, with_option_tables
from resurgence.connectors.registry import CONNECTORS
from resurgence.control.jobs.transitions import diagram
from resurgence.faults import FaultPoint
from resurgence.graph.connector_spec import Role
from resurgence.graph.explain import explain_graph
from resurgence.sql import compile_pipeline
from resurgence.udf import load_functions

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```sql\n(.*?)```", page.read_text(), re.DOTALL))
]


def test_the_diagram_of_the_states_matches_the_table() -> None:
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


def test_the_tables_of_options_are_those_that_connectors_declare() -> None:
    pages = {
        path.relative_to(ROOT / "docs"): path.read_text()
        for path in sorted((ROOT / "docs").rglob("*.md"))
    }
    stale = [
        name
        for name, page in pages.items()
        if with_option_tables(page, CONNECTORS, FORMATS, "../" * (len(name.parts) - 1)) != page
    ]
    assert stale == [], "write them anew with python scripts/option_tables.py"
    described = sorted(each for page in pages.values() for each in documented(page))
    of_connectors = [(name, role) for name, each in CONNECTORS.items() for role in each.roles]
    of_formats = [
        (f"format {name}", role)
        for name, each in FORMATS.items()
        for role in Role
        if each.spec.options(role).declared()
    ]
    assert described == sorted([*of_connectors, *of_formats])


def test_the_readme_has_the_guarantee_of_every_sink_as_explain_shows_it() -> None:
    table = re.findall(r"^\| `(\w+)` \| ([a-z ]+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    described = {name: guarantee.strip() for name, guarantee in table}
    assert described.pop("blackhole") == "no output"
    assert described == {
        name: spec.guarantee_of({})
        for name, each in CONNECTORS.items()
        if (spec := each.roles.get(Role.SINK)) is not None and name != "blackhole"
    }


@pytest.mark.parametrize(
    "options",
    [
        "'filesystem', path = 'out'",
        "'delta', path = 'out'",
        "'iceberg', 'catalog.rest.url' = 'http://c', namespace = 'a', table_name = 'b'",
    ],
)
def test_explain_shows_the_guarantee_of_a_table(options: str) -> None:
    graph = compile_pipeline(
        "CREATE TABLE i (counter BIGINT) WITH (connector = 'impulse', type = 'source', event_rate = '1');"
        f"CREATE TABLE out WITH (type = 'sink', connector = {options});"
        "INSERT INTO out SELECT counter FROM i",
        CONNECTORS,
        {},
    )
    assert "  guarantee    exactly once\n" in explain_graph(graph, parallelism=2)


def test_every_setting_and_fault_point_is_documented() -> None:
    settings = (ROOT / "docs/settings.md").read_text()
    assert [key for key in known_keys() if f"`{key}`" not in settings] == []
    faults = (ROOT / "docs/cli.md").read_text()
    assert [point for point in FaultPoint if f"`{point}`" not in faults] == []


def test_every_command_and_flag_is_documented() -> None:
    text = (ROOT / "docs/cli.md").read_text()
    usage = [line.split()[1:] for line in text.partition("```")[2].partition("```")[0].splitlines()]
    code = " ".join(re.findall(r"`[^`]+`", text.partition("## run")[2]))
    groups = {name.split()[0] for name, _ in _commands(typer.main.get_command(app)) if " " in name}
    missing = []
    for name, command in _commands(typer.main.get_command(app)):
        *group, last = name.split()
        if not any(
            last in words and set(words[:1]) & groups == set(group) & groups for words in usage
        ):
            missing.append(name)
        flags = [each for each in _flags(command) if each != "--help"]
        missing += [f"{name} {flag}" for flag in flags if not re.search(rf"{flag}\b", code)]
    assert missing == []


def _commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _flags(command: Any) -> list[str]:
    return [each for option in command.params for each in option.opts if each.startswith("--")]


def test_every_path_and_status_of_the_api_is_documented() -> None:
    text = (ROOT / "docs/api.md").read_text()
    paths = make_app(SimulatedController(Path()), Guard(), KeyRing(list)).openapi()["paths"]
    described = {
        f"| `{method.upper()} {path}` | {min(operation['responses'])} |"
        for path, operations in paths.items()
        for method, operation in operations.items()
    }
    assert set(re.findall(r"^\| `[A-Z]+ /\S*` \| \d+ \|", text, re.MULTILINE)) == described
    statuses = {
        status
        for operations in paths.values()
        for operation in operations.values()
        for status in operation["responses"]
        if status >= "400"
    }
    assert set(re.findall(r"^\| (4\d\d|5\d\d) \|", text, re.MULTILINE)) == statuses | {"405"}


def test_every_error_code_of_the_api_is_documented() -> None:
    text = (ROOT / "docs/api.md").read_text()
    sources = "".join(
        each.read_text() for each in sorted((ROOT / "src/resurgence/api").rglob("*.py"))
    )
    codes = re.findall(r'"((?:auth|limit|http|request|worker|job|sql|setting)\.\w+)"', sources)
    undocumented = {each for each in codes if f"`{each}`" not in text}
    assert undocumented == {"http.request"}, "no code, but what servers call a part of a body"


def test_the_script_makes_every_picture_of_the_console_that_a_page_shows() -> None:
    from scripts.screenshots import IN_DOCS, pictures

    shown = {
        name
        for page in PAGES
        for name in re.findall(r"images/(console-[\w-]+\.png)\)", page.read_text())
    }
    assert shown == set(IN_DOCS)
    assert shown <= pictures().keys()
