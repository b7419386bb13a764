"""`resurgence serve`: a controller for many jobs, behind the REST API.

It listens on the loopback address by default. On any other address it does not start without an API
key.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from resurgence.cli.pipeline_file import service_folder, values_for
from resurgence.cli.state_dir import DEFAULT_STATE_DIR, Debug, StateDir, run_and_exit
from resurgence.cli.whole_number import whole_number
from resurgence.config import settings_from
from resurgence.control.store.metadata import MetadataStore
from resurgence.errors import ConfigError
from resurgence.repeated_lines import collapsing_log
from resurgence.storage.object_store import storage_url
from resurgence.storage.private_files import make_private_folder
from resurgence.store_settings import apply_storage_settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from resurgence.api.access.guard import Guard
    from resurgence.api.access.key_ring import KeyRing, ReadKeys
    from resurgence.control.controller import Controller

DEFAULT_PORT = 7070
_SHUTDOWN_SECONDS = 10
_MOST_SOCKET_BYTES = 4_000_000
_ALL = ("0.0.0.0", "::")

Database = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="RESURGENCE_DATABASE",
        show_default=False,
        help="The metadata database, as postgresql://…; by default a file in the state dir.",
    ),
]


@dataclass(frozen=True)
class Service:
    """The inputs of a controller."""

    metadata: MetadataStore
    state_url: str
    folder: Path
    """For logs and local files."""
    values: dict[str, str]
    """Settings of all jobs, by dotted key."""


BuildController = Callable[[], AbstractAsyncContextManager["Controller"]]


def serve_command(
    host: Annotated[
        str, typer.Option(help="The address to listen on; any but loopback requires API keys.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            metavar="N", parser=whole_number(0, 65535), help="The port; 0 for any free one."
        ),
    ] = DEFAULT_PORT,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    database: Database = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE.toml",
            help="Settings; by default resurgence.toml, if it exists.",
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting; can be repeated."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Run many jobs behind the REST API. Ctrl-C or SIGTERM ends it."""

    def command() -> int:
        values = values_for(tuple(assignments or ()), config)
        apply_storage_settings(settings_from(values).storage)
        url = storage_url(state_dir)
        with opened_metadata(state_dir, database) as metadata:
            service = Service(metadata, url, service_folder(url), values)
            return serve(host, port, service)

    run_and_exit(debug, command)


def build_controller(service: Service, url: str) -> AbstractAsyncContextManager[Controller]:
    """Return a context that runs a controller. `url` is the address of its API."""
    from resurgence.control.service import open_service

    return open_service(
        service.metadata,
        state_url=service.state_url,
        folder=service.folder,
        values=service.values,
        url=url,
    )


@contextlib.contextmanager
def opened_metadata(state_dir: str, database: str | None) -> Iterator[MetadataStore]:
    """Open the service's database: the one named, else a file beside the jobs' state."""
    folder = service_folder(storage_url(state_dir))
    metadata = MetadataStore(database or folder / "service.db")
    try:
        yield metadata
    finally:
        metadata.close()


def serve(host: str, port: int, service: Service) -> int:
    """Serve until a signal arrives."""
    from resurgence.api.access.guard import Guard

    with _listening(host, port) as listener:
        guard = Guard(listener.getsockname()[0])
        if guard.key_is_required and not service.metadata.keys():
            raise ConfigError(
                f"listening on {host} requires an API key",
                hint="Create one with `resurgence keys create NAME --role write`, with the same "
                "--state-dir or --database.",
            )
        with collapsing_log():
            asyncio.run(_serve_until_signalled(listener, guard, service))
    return 0


async def _serve_until_signalled(listener: socket.socket, guard: Guard, service: Service) -> None:
    """Serve until the first SIGINT or SIGTERM. The second one speeds up the shutdown; a third has
    its default effect.
    """
    closing = asyncio.Event()
    opened: list[Controller] = []
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def on_signal() -> None:
        if not closing.is_set():
            closing.set()
            return
        for controller in opened:
            controller.hurry()
        for each in signals:
            loop.remove_signal_handler(each)

    @contextlib.asynccontextmanager
    async def build() -> AsyncIterator[Controller]:
        url = settings_from(service.values).controller.url or _reachable_address(listener)
        async with build_controller(service, url.rstrip("/")) as controller:
            opened.append(controller)
            yield controller

    def announce(url: str) -> None:
        print(f"serving at {url}", file=sys.stderr, flush=True)

    for each in signals:
        loop.add_signal_handler(each, on_signal)
    await serve_until(
        closing,
        listener,
        guard,
        build,
        service.metadata.keys,
        announce,
        session_secret(service.folder),
        service.folder / "console.logouts",
    )


def session_secret(folder: Path) -> bytes:
    """Return the secret that signs the sessions of the console, from a file that only this user can
    read. It is not in the database, whose readers cannot use the keys in it.
    """
    file = folder / "console.secret"
    if not file.exists():
        make_private_folder(folder)
        fresh = folder / f"console.secret.{secrets.token_hex(4)}"
        with open(fresh, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
            opened.write(secrets.token_bytes(32))
        with contextlib.suppress(FileExistsError):
            os.link(fresh, file)
        fresh.unlink()
    return file.read_bytes()


async def serve_until(
    closing: asyncio.Event,
    listener: socket.socket,
    guard: Guard,
    build: BuildController,
    read_keys: ReadKeys,
    on_ready: Callable[[str], None],
    session_secret: bytes | None = None,
    logouts: Path | None = None,
) -> None:
    """Serve a controller on a socket until `closing` is set; then wait for open requests for at
    most `_SHUTDOWN_SECONDS`, and close the controller. With a `session_secret`, which signs the
    sessions of its users, the web console is served, too. Without a file for `logouts`, a session
    that was logged out is valid again in another process with that secret.
    """
    import uvicorn

    from resurgence.api.access.key_ring import KeyRing
    from resurgence.api.app import make_app
    from resurgence.api.long_polls import LongPolls

    class Server(uvicorn.Server):
        """A server that leaves signals to the caller and reports when it is ready."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            on_ready(_address(listener))

    async with build() as controller:
        polls, ring = LongPolls(), KeyRing(read_keys)
        app = make_app(controller, guard, ring, polls)
        server = Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                http="h11",
                ws="none" if session_secret is None else "websockets-sansio",
                ws_max_size=_MOST_SOCKET_BYTES,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            )
        )

        async def close() -> None:
            await closing.wait()
            polls.close()
            server.should_exit = True

        ending = asyncio.create_task(close())
        async with _console(app, controller, guard, ring, session_secret, logouts):
            await server.serve(sockets=[listener])
        ending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ending


def _console(
    app: FastAPI,
    controller: Controller,
    guard: Guard,
    ring: KeyRing,
    secret: bytes | None,
    logouts: Path | None,
) -> AbstractAsyncContextManager[None]:
    """Return a context in which the application has the console, if there is a secret for it."""
    if secret is None:
        return contextlib.nullcontext()
    from resurgence.ui.mount import console_of

    return console_of(app, controller, guard, ring, secret, logouts)


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} of {host} is in use", hint="Choose another with --port."
            ) from error
        raise ConfigError(
            f"cannot listen on port {port} of {host}: {error.strerror}",
            hint="Choose another address with --host and --port.",
        ) from error


def _reachable_address(listener: socket.socket) -> str:
    """Return the address for other machines, if the socket listens on all addresses."""
    host, port = listener.getsockname()[:2]
    return f"http://{socket.gethostname()}:{port}" if host in _ALL else _address(listener)


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
