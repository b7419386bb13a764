"""References to secrets are resolved when a connector is created, and its errors do not contain
their values.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from resurgence.connectors import registry
from resurgence.connectors.checks import check_connectors
from resurgence.connectors.registry import CONNECTORS, make_sink, make_source
from resurgence.errors import ResurgenceError, UserError
from resurgence.graph.model import Graph
from resurgence.ids import JobName
from resurgence.sql import compile_pipeline

JOB = JobName("rides")


class LeakyConnector:
    """A connector whose errors quote its options."""

    def __init__(self, options: Mapping[str, str], *, fails_at_once: bool) -> None:
        self.options = options
        if fails_at_once:
            self.check()

    def check(self) -> None:
        try:
            raise OSError(f"refused: {dict(self.options)}")
        except OSError as error:
            raise UserError(f"no login: {self.options['path']}", hint=str(error)) from error


def graph(folder: Path, *, source: str = "in.json", sinks: tuple[str, ...] = ("out",)) -> Graph:
    (folder / "in.json").write_text('{"a": 1}\n')
    declared = "".join(
        f"CREATE TABLE o{number} WITH (connector = 'filesystem', path = '{path}');"
        f"INSERT INTO o{number} SELECT a FROM t;"
        for number, path in enumerate(sinks)
    )
    text = (
        f"CREATE TABLE t (a INT) WITH (connector = 'single_file', path = '{source}', type = 'source');"
        + declared
    )
    return compile_pipeline(text, CONNECTORS)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RESURGENCE_PLACE", "hunter2")
    return tmp_path


def test_connectors_receive_the_values_of_references(here: Path) -> None:
    (here / "name").write_text("in.json\n")
    made = graph(here, source="${file:name}", sinks=("${env:RESURGENCE_PLACE}",))
    check_connectors(made, str(here / "state"), JOB)
    assert (here / "hunter2").is_dir()
    assert make_source(made.sources()[0]) is not None
    assert "hunter2" not in made.model_dump_json()


@pytest.mark.parametrize(
    ("source", "sink", "place"),
    [
        ("${env:RESURGENCE_NONE}", "out", "table 't', option 'path': ${env:RESURGENCE_NONE}: "),
        ("in.json", "a/${file:none}", "table 'o0', option 'path': ${file:none}: "),
    ],
)
def test_a_missing_secret_is_detected_by_the_check(
    here: Path, source: str, sink: str, place: str
) -> None:
    with pytest.raises(UserError) as caught:
        check_connectors(graph(here, source=source, sinks=(sink,)), str(here / "state"), JOB)
    assert place in caught.value.message
    assert caught.value.hint


def test_an_equal_path_behind_a_reference_is_refused_and_not_shown(here: Path) -> None:
    made = graph(here, sinks=("hunter2", "${env:RESURGENCE_PLACE}"))
    with pytest.raises(UserError, match=r"both write to \$\{env:RESURGENCE_PLACE\}"):
        check_connectors(made, str(here / "state"), JOB)


@pytest.mark.parametrize("fails_at_once", [True, False])
@pytest.mark.parametrize("role", ["source", "sink"])
@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("x/${env:RESURGENCE_PLACE}", "no login: x/${env:RESURGENCE_PLACE}"),
        ("pg://me:hunter2@host", "no login: pg://me:***@host"),
    ],
)
def test_errors_of_a_connector_contain_no_secrets(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    fails_at_once: bool,
    role: str,
    written: str,
    shown: str,
) -> None:
    def make(options: Any, _: object) -> Any:
        return LeakyConnector({"path": options.path}, fails_at_once=fails_at_once)

    name = "single_file" if role == "source" else "filesystem"
    real = registry.INSTALLED[name]
    loud = replace(getattr(real, role), make=make)
    installed = {**registry.INSTALLED, name: replace(real, **{role: loud})}
    monkeypatch.setattr(registry, "INSTALLED", installed)
    made = graph(here, source=written) if role == "source" else graph(here, sinks=(written,))
    with pytest.raises(ResurgenceError) as caught:
        if not fails_at_once:
            check_connectors(made, str(here / "state"), JOB)
        elif role == "source":
            make_source(made.sources()[0])
        else:
            make_sink(made.sinks()[0], str(here / "state"), JOB)
    assert isinstance(caught.value, UserError)
    assert caught.value.message == shown
    reported = [*traceback.format_exception(caught.value), caught.value.hint]
    assert "hunter2" not in "".join(reported)
