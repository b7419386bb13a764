"""The command line in this process, over a job with real state files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.unit.state.real_state import RealJob
from typer.testing import CliRunner

from resurgence.cli.app import app


@dataclass(frozen=True)
class Answer:
    """How a command ended, and what it said."""

    status: int
    out: str
    err: str


Cli = Callable[..., Answer]


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def real(state_dir: Path) -> RealJob:
    """A job with three checkpoints."""
    made = RealJob.at(str(state_dir))
    made.run(1, 2, 3)
    return made


@pytest.fixture
def cli(state_dir: Path) -> Cli:
    """Runs a command on the state dir. No stack trace ever reaches the user."""

    return lambda *arguments: _answer(*arguments, "--state-dir", str(state_dir))


@pytest.fixture
def machine_cli() -> Cli:
    """Runs a command that has no state dir."""
    return _answer


def _answer(*arguments: str) -> Answer:
    done = CliRunner().invoke(app, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.output
    return Answer(done.exit_code, done.stdout, done.stderr)
