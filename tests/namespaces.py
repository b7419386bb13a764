"""A network namespace for one process, whose links can be cut one by one.

The process reaches each service through a link of its own: a pair of virtual interfaces to a second
namespace, the hub. There a relay accepts connections and passes them on to the service on this
machine. Nothing is added to the network of this machine, and no packet leaves the two namespaces: the
sockets of the relays are opened in them by a thread of this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

_CLONE_NEWNET = 0x40000000
_CONNECT_SECONDS = 5.0
T = TypeVar("T")
Connect = Callable[[], socket.socket]


class NoNamespaces(Exception):
    """Namespaces cannot be made here."""


@dataclass
class Namespace:
    """The namespace of one process, and its hub."""

    name: str
    hub: str
    _links: dict[str, str] = field(default_factory=dict)
    _relays: list[socket.socket] = field(default_factory=list)

    @property
    def prefix(self) -> list[str]:
        """The words before a command that run it in the namespace. Its processes are not visible to
        others by their numbers, as if it was another machine. They end with the command.
        """
        unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return ["ip", "netns", "exec", self.name, *unshare]

    def link(self, service: str, connect: Connect) -> tuple[str, int]:
        """Link the namespace to a service, to which `connect` connects. Return its address there."""
        number = len(self._links) + 1
        here, there = f"{service}0", f"to-{service}"
        run("ip", "-n", self.name, "link", "add", here, "type", "veth", "peer", "name", there)
        run("ip", "-n", self.name, "link", "set", there, "netns", self.hub)
        for space, interface, host in ((self.name, here, 2), (self.hub, there, 1)):
            address = f"10.231.{number}.{host}/30"
            run("ip", "-n", space, "address", "add", address, "dev", interface)
            run("ip", "-n", space, "link", "set", interface, "up")
        self._links[service] = here
        address = f"10.231.{number}.1"
        listener = _inside(self.hub, lambda: socket.create_server((address, 0)))
        self._relay(listener, connect)
        return address, listener.getsockname()[1]

    def expose(self, port: int) -> int:
        """Return a port of this machine's loopback address that leads to that of the namespace."""
        listener = socket.create_server(("127.0.0.1", 0))

        def connect() -> socket.socket:
            return _inside(self.name, lambda: _connect(port))

        self._relay(listener, connect)
        return int(listener.getsockname()[1])

    def cut(self, service: str) -> None:
        """Drop everything on a link; `lo` is the namespace's loopback."""
        run("ip", "-n", self.name, "link", "set", self._links.get(service, service), "down")

    def restore(self, service: str) -> None:
        """End a cut."""
        run("ip", "-n", self.name, "link", "set", self._links.get(service, service), "up")

    def close(self) -> None:
        for each in self._relays:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            each.close()

    def _relay(self, listener: socket.socket, connect: Connect) -> None:
        self._relays.append(listener)
        threading.Thread(target=_accept, args=(listener, connect), daemon=True).start()


@contextmanager
def namespace() -> Iterator[Namespace]:
    """A new namespace; NoNamespaces with the reason if there can be none."""
    for command, package in (("ip", "iproute2"), ("unshare", "util-linux")):
        if shutil.which(command) is None:
            raise NoNamespaces(f"the command `{command}` of {package} is missing")
    mark = uuid.uuid4().hex[:6]
    made = Namespace(f"resurgence-{mark}", f"resurgence-hub-{mark}")
    with ExitStack() as ending:
        for name in (made.name, made.hub):
            run("ip", "netns", "add", name)
            ending.callback(run, "ip", "netns", "delete", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        ending.callback(made.close)
        run(*made.prefix, "true")
        yield made


@pytest.fixture
def victim_namespace() -> Iterator[Namespace]:
    try:
        with namespace() as made:
            yield made
    except NoNamespaces as error:
        pytest.skip(f"no network namespace: {error}")


def run(*words: str) -> None:
    """Run a command; raise NoNamespaces with what it says if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise NoNamespaces(f"`{' '.join(words)}`: {done.stderr.strip()}")


def _inside(name: str, call: Callable[[], T]) -> T:
    """The result of a call by a thread in that namespace. Its sockets stay there."""

    def enter_and_call() -> T:
        with open(f"/run/netns/{name}") as file:  # noqa: PTH123 - a descriptor is needed
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
                raise NoNamespaces(os.strerror(ctypes.get_errno()))
        return call()

    with ThreadPoolExecutor(1) as pool:  # the thread ends with the call
        return pool.submit(enter_and_call).result()


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_SECONDS)


def _accept(listener: socket.socket, connect: Connect) -> None:
    while True:
        try:
            accepted, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(accepted, connect), daemon=True).start()


def _serve(accepted: socket.socket, connect: Connect) -> None:
    with accepted:
        try:
            reached = connect()
        except OSError:
            return
        reached.settimeout(None)
        with reached:
            back = threading.Thread(target=_copy, args=(reached, accepted), daemon=True)
            back.start()
            _copy(accepted, reached)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
