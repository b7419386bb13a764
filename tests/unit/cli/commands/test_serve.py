"""`serve` and `keys`: what is refused, and how a real process starts and ends."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.unit.cli.conftest import Cli

from resurgence.api.access.api_keys import digest
from resurgence.control.store.metadata import KeyRole, MetadataStore

SCRIPT = """
import sys
from pathlib import Path
from tests.unit.api.simulated_service import SimulatedController, simulated
from resurgence.cli.commands import serve
from resurgence.cli.app import main
serve.build_controller = lambda service, url: simulated(SimulatedController(Path()))()
sys.argv[0] = "resurgence"
main()
"""
ROOT = Path(__file__).parents[4]


def test_a_key_is_printed_once_and_stored_as_a_digest(cli: Cli, state_dir: Path) -> None:
    made = cli("keys", "create", "ci", "--role", "write")
    text = made.out.strip()
    assert (made.status, text.startswith("rsg_ci_")) == (0, True)
    store = MetadataStore(state_dir / ".service" / "service.db")
    (key,) = store.keys()
    store.close()
    assert (key.name, key.role, key.digest) == ("ci", KeyRole.WRITE, digest(text))
    listed = cli("keys", "list")
    assert listed.out.splitlines()[1].split()[:2] == ["ci", "write"]
    assert text not in listed.out
    assert key.digest not in cli("keys", "list", "--json").out


def test_keys_are_removed_by_name(cli: Cli) -> None:
    cli("keys", "create", "ci")
    assert cli("keys", "create", "ci").status == 2
    assert cli("keys", "create", "No Name").status == 2
    wrong = cli("keys", "remove", "cii")
    assert wrong.status == 2
    assert "Perhaps you meant 'ci'." in wrong.err
    assert cli("keys", "remove", "ci").status == 0
    assert cli("keys", "list").out == "there are no keys\n"


def test_an_imported_key_replaces_the_one_of_that_name(
    cli: Cli, state_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "ci.key"
    for digit in "12":
        text = f"rsg_ci_{digit * 64}"
        file.write_text(f"{text}\n")
        done = cli("keys", "import", "ci", str(file), "--role", "write")
        assert (done.status, text in done.out + done.err) == (0, False)
        store = MetadataStore(state_dir / ".service" / "service.db")
        (key,) = store.keys()
        store.close()
        assert (key.name, key.role, key.digest) == ("ci", KeyRole.WRITE, digest(text))


@pytest.mark.parametrize(
    "text", ["rsg_ci_" + "1" * 42, "rsg_other_" + "1" * 64, "1" * 64, "rsg_ci_" + "é" * 64]
)
def test_a_key_that_could_be_guessed_or_has_another_name_is_not_imported(
    cli: Cli, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "ci.key"
    file.write_text(text)
    done = cli("keys", "import", "ci", str(file))
    assert (done.status, text in done.err) == (2, False)
    assert "does not have the form of an API key" in done.err
    missing = cli("keys", "import", "ci", str(tmp_path / "none"))
    assert (missing.status, "cannot read key 'ci'" in missing.err) == (2, True)
    assert cli("keys", "list").out == "there are no keys\n"


def test_a_port_in_use_is_a_user_error(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cli("serve", "--port", str(port))
    assert done.status == 2
    assert done.err.startswith(f"error: port {port} of 127.0.0.1 is in use")


def test_an_address_of_another_machine_is_refused(cli: Cli) -> None:
    done = cli("serve", "--port", "0", "--host", "192.0.2.1")
    assert done.status == 2
    assert "cannot listen" in done.err
    assert cli("serve", "--port", "0", "--host", "no such name").status == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_listening_on_another_address_requires_a_key(cli: Cli, host: str) -> None:
    done = cli("serve", "--host", host, "--port", "0")
    if "cannot listen" in done.err:
        pytest.skip(f"this machine has no {host}")
    assert done.status == 2
    assert "requires an API key" in done.err
    assert "resurgence keys create" in done.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_service_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    arguments = ["serve", "--port", "0", "--state-dir", str(tmp_path / "state")]
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.fullmatch(r"serving at (http://127\.0\.0\.1:\d+)\n", line)
        assert found is not None, line
        assert httpx.get(f"{found[1]}/ready", trust_env=False, timeout=30).status_code == 200
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (0, "", "")
    finally:
        process.kill()
        process.communicate()
