"""`resurgence dead-letters` about a job of a service, over the state of a real job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.api.simulated_service import SQL, KeyBox, SimulatedController, served, simulated
from tests.unit.cli.conftest import Answer, Cli
from tests.unit.state.dead_letter_files import letter, write_letters
from tests.unit.state.real_state import RealJob
from typer.testing import CliRunner

from resurgence.cli.app import app
from resurgence.cli.commands import dead_letters
from resurgence.control.store.metadata import KeyRole
from resurgence.ids import JobName

RIDES = JobName("rides")
Letters = Callable[..., Answer]
KINDS = "SELECT error, count(*) AS n, max(raw) AS raw FROM dead_letters GROUP BY ALL ORDER BY ALL"


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[str, SimulatedController, dict[KeyRole, str]]]:
    """Its address, its controller and a key of each role."""
    controller, keys = SimulatedController(Path()), KeyBox([])
    texts = {role: keys.add(f"a-{role}", role) for role in KeyRole}
    with served(simulated(controller), keys) as url:
        yield url, controller, texts


@pytest.fixture
def letters(
    service: tuple[str, SimulatedController, dict[KeyRole, str]],
    real: RealJob,
    state_dir: Path,
    tmp_path: Path,
) -> Letters:
    """Runs a command with a key that may only read, over a job with dead letters."""
    url, controller, keys = service
    controller.begin_anew(tmp_path)
    headers = [{"key": "h", "value": b"1"}]
    write_letters(
        real,
        letter(1, 4, b'{"a": 1}', error="DIVIDE_BY_ZERO", key=b"k", headers=headers),
        letter(3, 9, b"\xff"),
        letter(3, 12, None),
    )

    def run(*arguments: str, role: KeyRole = KeyRole.READ) -> Answer:
        environment = {"RESURGENCE_SERVER": url, "RESURGENCE_API_KEY": keys[role]}
        done = CliRunner().invoke(app, list(arguments), env=environment)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert "Traceback" not in done.output
        return Answer(done.exit_code, done.stdout, done.stderr)

    file = tmp_path / "rides.sql"
    file.write_text(SQL)
    assert run("create", str(file), role=KeyRole.WRITE).status == 0
    record = controller.records[RIDES]
    pipeline = replace(record.pipeline, state_url=str(state_dir))
    controller.records[RIDES] = replace(record, pipeline=pipeline)
    return lambda *arguments, **role: run("dead-letters", *arguments, **role)


@pytest.mark.parametrize("letter_id", ["1-1", "3-1", "3-2"])
def test_one_is_shown_as_from_a_state_directory(letters: Letters, cli: Cli, letter_id: str) -> None:
    done = letters("show", letter_id, "rides")
    assert done.status == 0, done.err
    assert done == cli("dead-letters", "show", letter_id)
    if letter_id == "1-1":
        assert "\nkey        k\nheader     h: 1\n" in done.out
        assert done.out.endswith('raw\n  {"a": 1}\n')


@pytest.mark.parametrize("layout", ["table", "json", "csv"])
def test_a_query_prints_what_it_prints_from_a_state_directory(
    letters: Letters, cli: Cli, layout: str
) -> None:
    done = letters("query", KINDS, "rides", "--format", layout)
    assert done.status == 0, done.err
    assert done == cli("dead-letters", "query", KINDS, "--format", layout)
    if layout == "json":
        assert json.loads(done.out.splitlines()[1]) == {"error": "not JSON", "n": 2, "raw": "ff"}


def test_a_query_with_more_rows_says_so(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "MOST_LETTER_ROWS", 2)
    done = letters("query", "SELECT id FROM dead_letters", "rides", "--format", "csv")
    assert done.out.splitlines() == ["id", "1-1", "3-1"]
    assert done.err == "only the first 2 rows are shown; a service returns no more\n"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("show", "7-1", "rides"), "there is no dead letter 7-1"),
        (("show", "1-1", "taxis"), "there is no job 'taxis'"),
        (("query", "DROP TABLE dead_letters", "rides"), "not a single SELECT"),
        (("query", "", "rides"), "sql: String should have at least 1 character"),
        (("query", "SELECT 1", "taxis"), "there is no job 'taxis'"),
        (("replay", "rides", "--id", "x"), "ids.0: String should match pattern"),
        (("replay", "rides"), "may only read"),
    ],
)
def test_what_the_service_refuses_is_one_message(
    letters: Letters, command: tuple[str, ...], message: str
) -> None:
    done = letters(*command)
    assert (done.status, message in done.err) == (2, True), done.err
