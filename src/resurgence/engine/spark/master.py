"""The master that a Spark driver registers with: what kind it is, and whether it can be reached."""

from __future__ import annotations

import socket
from datetime import timedelta

from resurgence.errors import ClusterUnavailable

_CONNECT_WITHIN = timedelta(seconds=5)
_STANDALONE = "spark://"
_STANDALONE_PORT = 7077
_LOOPBACK = ("localhost", "127.", "[::1]")


def is_local(master: str) -> bool:
    """Whether tasks run in the driver's own JVM."""
    return master == "local" or master.startswith("local[")


def is_on_loopback(master: str) -> bool:
    """Whether driver, master and executors are all on this machine."""
    addresses = _addresses(master)
    return is_local(master) or (
        bool(addresses) and all(host.startswith(_LOOPBACK) for host, _ in addresses)
    )


def require_reachable(master: str, patience: timedelta = _CONNECT_WITHIN) -> None:
    """Raise ClusterUnavailable if no process of a standalone master accepts a connection. Spark
    would try for a minute, and then stop without saying why. Other masters are not checked: their
    address may only be reachable in a way that Spark is configured for.
    """
    addresses = _addresses(master)
    refused = []
    for host, port in addresses:
        try:
            socket.create_connection((host.strip("[]"), port), patience.total_seconds()).close()
        except OSError as error:
            refused.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    if addresses:
        raise ClusterUnavailable(
            f"cannot connect to the Spark master {master} ({'; '.join(refused)})",
            hint="Start the master, or fix spark.master. The job will retry.",
        )


def _addresses(master: str) -> list[tuple[str, int]]:
    """Return the addresses of a standalone master, of which several may stand by for each other."""
    if not master.startswith(_STANDALONE):
        return []
    found = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.strip().rpartition(":")
        if host and port.isdecimal():
            found.append((host, int(port)))
        else:
            found.append((address.strip(), _STANDALONE_PORT))
    return found
