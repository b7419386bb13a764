"""Masters: which are on this machine, and which can be reached."""

from __future__ import annotations

import socket
from datetime import timedelta

import pytest

from resurgence.engine.spark.master import is_local, is_on_loopback, require_reachable
from resurgence.errors import ClusterUnavailable, ErrorDomain


@pytest.mark.parametrize(
    ("master", "local", "loopback"),
    [
        ("local", True, True),
        ("local[2,2]", True, True),
        ("spark://127.0.0.1:7077", False, True),
        ("spark://localhost:7077,127.0.0.1:7078", False, True),
        ("spark://[::1]:7077", False, True),
        ("spark://localhost:7077,spark-2.example.com:7077", False, False),
        ("spark://10.0.0.7:7077", False, False),
        ("k8s://https://127.0.0.1:6443", False, False),
        ("yarn", False, False),
    ],
)
def test_a_master_is_local_or_on_loopback(master: str, local: bool, loopback: bool) -> None:
    assert is_local(master) == local
    assert is_on_loopback(master) == loopback


def test_a_master_that_refuses_connections_is_reported_with_its_addresses() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ClusterUnavailable, match="Connection refused") as raised:
            require_reachable(master)
    assert master in raised.value.message
    assert raised.value.domain is ErrorDomain.EXTERNAL
    assert "spark.master" in raised.value.hint


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        ports = free.getsockname()[1], listening.getsockname()[1]
        require_reachable(",".join([f"spark://127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}"]))


def test_only_standalone_masters_are_checked() -> None:
    for master in ("local[2]", "yarn", "k8s://https://nowhere.invalid:6443"):
        require_reachable(master, timedelta(0))
