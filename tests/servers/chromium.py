"""Debian's Chromium, which the tests of the console drive."""

from __future__ import annotations

import os
import shutil
import subprocess

from tests.servers.builds import NoServer

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_INSTALL = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium"]
_DEADLINE = 600.0


def chromium() -> str:
    """The path of the program; raise NoServer if it is not installed."""
    path = shutil.which("chromium")
    if path is None:
        raise NoServer("`python -m tests.servers chromium` installs it from Debian's packages")
    return path


def build() -> None:
    """Install it, if that is possible here."""
    if shutil.which("chromium") is not None:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise NoServer("chromium is not installed, and only root can install it with apt-get")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "--quiet"], _INSTALL):
        done = subprocess.run(
            command, capture_output=True, text=True, env=quiet, timeout=_DEADLINE, check=False
        )
    if done.returncode:
        raise NoServer(f"chromium cannot be installed: {done.stderr.strip()[-200:]}")
