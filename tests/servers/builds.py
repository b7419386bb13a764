"""Builds servers from their public packages, once per machine, in the cache folder of the project.

Versions are pinned. Processes that need the same server wait for one build, under a lock that the
kernel releases when its holder dies.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BUILD_DEADLINE = 900.0


class NoServer(Exception):
    """A server cannot be built or started here; the message says why."""


def go_binary(package: str, version: str) -> Path:
    """The program of a Go package."""
    if shutil.which("go") is None:
        raise NoServer(f"{package} cannot be built: there is no Go toolchain")
    folder = _cache() / f"{package.rsplit('/', 1)[-1]}-{version}"

    def build(fresh: Path) -> None:
        _run(["go", "install", f"{package}@{version}"], {"GOBIN": str(fresh)})

    return _built(folder, build) / package.rsplit("/", 1)[-1]


def npm_package(package: str, version: str) -> Path:
    """The folder `node_modules` with a package of npm. No scripts of packages are run."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise NoServer(f"{package} cannot be installed: there is no Node.js")

    def build(fresh: Path) -> None:
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(fresh)]
        _run(["npm", "install", *options, f"{package}@{version}"], {})

    return _built(_cache() / f"{package}-{version}", build) / "node_modules"


def _cache() -> Path:
    cache = (
        os.environ.get("RESURGENCE_CACHE_DIR")
        or os.environ.get("XDG_CACHE_HOME")
        or Path.home() / ".cache"
    )
    folder = Path(cache, "resurgence", "servers")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _built(folder: Path, build: object) -> Path:
    """A folder that exists only when it is complete."""
    assert callable(build)
    with _locked(folder.with_name(f"{folder.name}.lock")):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
                build(Path(fresh))
                Path(fresh).rename(folder)
                Path(fresh).mkdir()
    return folder


def _run(command: list[str], more: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_BUILD_DEADLINE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoServer(f"{' '.join(command)}: {error}") from error
    if done.returncode != 0:
        text = done.stdout.decode(errors="replace")[-500:].strip()
        raise NoServer(f"{' '.join(command)} failed: {text}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    give_up_at = time.monotonic() + _BUILD_DEADLINE
    with path.open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > give_up_at:
                    raise NoServer(f"another process holds {path}") from error
                time.sleep(0.2)
        yield
