"""Builds servers from their public packages, once per machine, in the cache folder of the project.

Versions are pinned. Processes that need the same server wait for one build, under a lock that the
kernel releases when its holder dies.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from resurgence.cache_folder import cache_folder
from resurgence.engine.spark.java import find_java

_BUILD_DEADLINE = 900.0
_QUIET = ["-B", "-ntp", "-q"]
"""Batch mode, and no progress of downloads: only the reason of a failure is of interest."""


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


def python_packages(name: str, requirements: Sequence[str]) -> Path:
    """A folder with packages of PyPI, apart from those of this process."""
    version = requirements[0].rpartition("==")[2]

    def build(fresh: Path) -> None:
        options = ["--quiet", "--no-deps", "--only-binary=:all:", "--target", str(fresh)]
        _run([sys.executable, "-m", "pip", "install", *options, *requirements], {})

    return _built(_cache() / f"{name}-{version}", build)


def maven_jars(name: str, coordinates: Sequence[str]) -> Path:
    """A folder with the jars of Maven artifacts (`group:artifact:version`, perhaps with
    `:classifier`) and what they need.
    """
    version = coordinates[0].split(":")[2]

    def build(fresh: Path) -> None:
        _require_maven(name)
        (fresh / "pom.xml").write_text(_pom(coordinates))
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        options = [*_QUIET, "-f", str(fresh / "pom.xml")]
        _run(["mvn", *options, *goal, f"-DoutputDirectory={fresh}"], {})

    return _built(_cache() / f"{name}-{version}", build)


def maven_archive(name: str, coordinate: str) -> Path:
    """A folder with the content of a Maven artifact (`group:artifact:version:tar.gz:classifier`)."""

    def build(fresh: Path) -> None:
        _require_maven(name)
        goal = ["dependency:copy", f"-Dartifact={coordinate}", f"-DoutputDirectory={fresh}"]
        _run(["mvn", *_QUIET, *goal], {})
        (archive,) = fresh.iterdir()
        with tarfile.open(archive) as packed:
            packed.extractall(fresh, filter="data")
        archive.unlink()

    return _built(_cache() / f"{name}-{coordinate.split(':')[2]}", build)


def java_classes(name: str, source: Path, jars: Path) -> Path:
    """A folder with the classes of one Java file, compiled against a folder of jars."""
    compiler = Path(find_java().executable).resolve().with_name("javac")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]

    def build(fresh: Path) -> None:
        if not compiler.exists():
            raise NoServer(f"{name} cannot be compiled: there is no {compiler}")
        _run([str(compiler), "-cp", f"{jars}/*", "-d", str(fresh), str(source)], {})

    return _built(_cache() / f"{name}-{digest}", build)


def _require_maven(name: str) -> None:
    if shutil.which("mvn") is None:
        raise NoServer(f"{name} cannot be installed: there is no Maven")


def _pom(coordinates: Sequence[str]) -> str:
    names = ("groupId", "artifactId", "version", "classifier")
    dependencies = "".join(
        "<dependency>"
        + "".join(
            f"<{name}>{part}</{name}>" for name, part in zip(names, each.split(":"), strict=False)
        )
        + "</dependency>"
        for each in coordinates
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>tests</groupId>"
        f"<artifactId>jars</artifactId><version>1</version><dependencies>{dependencies}"
        "</dependencies></project>"
    )


def _cache() -> Path:
    folder = cache_folder() / "servers"
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
