"""What the shell offers: commands, jobs of a state directory or a service, sets of jars."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from resurgence.cli.app import app


def offered(line: str) -> list[str]:
    """What bash is offered at the end of a line."""
    words = line.split(" ")
    done = CliRunner().invoke(
        app,
        [],
        prog_name="resurgence",
        env={
            "_RESURGENCE_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
    )
    assert done.exit_code == 0, done.output
    return done.stdout.split()


class _Jobs(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"jobs": [{"name": "rides"}, {"name": "revenue"}, {"name": "taxis"}]})
        self.send_response(200 if self.path == "/v1/jobs" else 404)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


@pytest.fixture
def service() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Jobs)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_commands_and_their_subcommands_are_offered() -> None:
    assert offered("resurgence ch") == ["check", "checkpoints"]
    assert offered("resurgence checkpoints ") == ["list", "show", "verify"]


def test_jobs_of_a_state_directory_are_offered(tmp_path: Path) -> None:
    for name in ("rides", "taxis"):
        (tmp_path / name / "generations").mkdir(parents=True)
    (tmp_path / "logs").mkdir()
    command = f"resurgence ledger --state-dir {tmp_path} --name "
    assert offered(command) == ["rides", "taxis"]
    assert offered(f"{command}t") == ["taxis"]
    assert offered("resurgence ledger --state-dir /nowhere --name ") == []


def test_jobs_of_a_service_are_offered(service: str) -> None:
    assert offered(f"resurgence stop --server {service} r") == ["rides", "revenue"]
    assert offered("resurgence stop --server http://127.0.0.1:9 r") == []


def test_sets_of_jars_are_offered() -> None:
    assert offered("resurgence connectors install k") == ["kafka"]


def test_the_script_for_a_shell_is_printed() -> None:
    env = {"_RESURGENCE_COMPLETE": "source_bash"}
    done = CliRunner().invoke(app, [], prog_name="resurgence", env=env)
    assert done.exit_code == 0, done.output
    assert "-o default -F" in done.stdout, "bash itself completes files"
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output
