"""The help: every command is in a group, and shows an example that is a valid command line."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from resurgence.cli.app import app
from resurgence.cli.guide import EXAMPLES, GROUPS

ROOT: Any = typer.main.get_command(app)


def _commands(group: Any, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        path = f"{prefix}{name}"
        found |= _commands(command, f"{path} ") if hasattr(command, "commands") else {path: command}
    return found


def test_every_command_is_in_a_group_and_has_an_example() -> None:
    assert {*ROOT.commands} == {*GROUPS}
    assert {*_commands(ROOT)} == {*EXAMPLES}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_command_parses(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("rides.sql", "corrected.jsonl", "key.txt"):
        (tmp_path / file).touch()
    program, *words = shlex.split(EXAMPLES[name])
    assert program == "resurgence"
    command, path = ROOT, name.split()
    for word in path:
        assert words.pop(0) == word
        command = command.commands[word]
    command.make_context(name, words)


def test_the_help_shows_the_groups_in_order_and_the_examples() -> None:
    text = CliRunner().invoke(app, ["--help"]).output
    places = [text.index(f"─ {each} ─") for each in dict.fromkeys(GROUPS.values())]
    assert places == sorted(places)
    shown = CliRunner().invoke(app, ["checkpoints", "verify", "--help"]).output
    assert EXAMPLES["checkpoints verify"] in shown
