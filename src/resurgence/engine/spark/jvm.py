"""The JVM below a Spark driver: started without Spark's launcher scripts, watched, ended.

PySpark starts its JVM through two shell scripts and a launcher JVM. This module starts that JVM
directly and holds one end of its standard input: the JVM exits when that pipe closes, so it cannot
outlive the process that started it, not even after SIGKILL. All its files are in a temporary
directory of that process.

`session` owns the configuration of a session.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from resurgence.engine.spark.class_archive import archive_path, build_archive_in_background
from resurgence.engine.spark.java import (
    JAVA_OPTIONS,
    QUIET,
    Java,
    class_path,
    find_java,
    spark_home,
)
from resurgence.engine.spark.master import is_local
from resurgence.engine.spark.temporary_files import TemporaryDirectory, sweep_temporary_directories
from resurgence.errors import ResurgenceError
from resurgence.storage.private_files import open_private_log

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

START_WITHIN = timedelta(seconds=60)
_LONGEST_SOCKET_PATH = 103
_HOOKS = ("-javaagent:", "-agentlib:", "-agentpath:", "StartFlightRecording")
"""Options that load an agent, or start a flight recording: both instrument classes."""


@dataclass(frozen=True)
class Gateway:
    """The port on which the JVM listens for PySpark, and the secret that it requires."""

    port: int
    secret: str


class JvmProcess:
    """A running JVM and its working directory."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        directory: TemporaryDirectory,
        gateway: Gateway,
        master: str,
    ) -> None:
        self._process = process
        self._directory = directory
        self.gateway = gateway
        self.master = master

    @property
    def directory(self) -> Path:
        return self._directory.path

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_status(self, patience: timedelta) -> int | None:
        """Wait for its exit status; None if it still runs when patience ends."""
        try:
            return self._process.wait(patience.total_seconds())
        except subprocess.TimeoutExpired:
            return None

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self, patience: timedelta = timedelta(seconds=10)) -> None:
        """Ask the JVM to exit, and kill it if it does not. Idempotent."""
        _end(self._process, patience)
        self._directory.delete()


def start_jvm(
    *,
    memory: str,
    conf: Mapping[str, str],
    log_file: Path,
    class_data_archive: bool = True,
    java_options: Sequence[str] = (),
    deadline: timedelta = START_WITHIN,
) -> JvmProcess:
    """Start a JVM that waits for PySpark to connect. Its output is appended to `log_file`."""
    java = find_java()
    attempt = partial(_start, java, memory=memory, conf=conf, log_file=log_file, deadline=deadline)
    if not class_data_archive or _transforms_classes([*java_options, *conf.values()]):
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
        # Java skips an archive that it finds invalid, but this one may have crashed it. A second
        # failure, without the archive, has another cause.
        jvm = attempt(java_options)
        with contextlib.suppress(OSError):
            archive.unlink()
    else:
        with contextlib.suppress(OSError):
            os.utime(archive)
    return jvm


def _transforms_classes(options: Iterable[str]) -> bool:
    """Return whether an agent may change classes while they are loaded: with some classes of an
    archive, Java 17 crashes then.
    """
    inherited = (os.environ.get(each, "") for each in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"))
    return any(hook in each for each in (*options, *inherited) for hook in _HOOKS)


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
    own = TemporaryDirectory()
    directory = own.path
    connection_file = directory / "connection"
    logging_file = directory / "log4j2.properties"
    logging_file.write_text(_LOGGING)
    properties_file = directory / "spark.properties"
    properties_file.write_text(
        properties_text(_with_own_directories(conf, directory)), encoding="utf-8"
    )
    command = [
        java.executable,
        f"-Xmx{memory}",
        # Epochs need throughput, and this collector is built for it.
        "-XX:+UseParallelGC",
        # Spark's classes need about this much. Java would start with less, and run a full
        # collection each time that it grows.
        "-XX:MetaspaceSize=256m",
        # Statistics for other processes, in a directory that cannot be configured.
        "-XX:-UsePerfData",
        f"-Djava.io.tmpdir={directory}",
        *JAVA_OPTIONS,
        *java_options,
        *_driver_options(conf),
        *QUIET,
        f"-Dlog4j2.configurationFile={logging_file.as_uri()}",
        *class_path(_entries(conf.get("spark.driver.extraClassPath")), _hadoop_configuration()),
        "org.apache.spark.deploy.SparkSubmit",
        "--properties-file",
        str(properties_file),
        "--load-spark-defaults",
        "pyspark-shell",
    ]
    environment = os.environ | {
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONNECT_MODE": "0",
        "TMPDIR": str(directory),
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_file),
    }
    with open_private_log(log_file) as log:
        log_start = log.tell()
        # In the process group of its parent: killing that group leaves no process behind.
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
            own.delete()
    if gateway is None:
        what = (
            f"was not ready within {deadline.total_seconds():g} s"
            if exit_code is None
            else f"exited with {exit_code}"
        )
        raise ResurgenceError(
            f"the JVM of Spark {what}:\n{_tail(log_file, log_start)}",
            hint=f"Read the whole log in {log_file}.",
        )
    for read_once in (connection_file, properties_file, logging_file):
        read_once.unlink()
    # Leftover directories can be large, so they are deleted in the background.
    swept = (directory.parent,)
    threading.Thread(target=sweep_temporary_directories, args=swept, daemon=True).start()
    return JvmProcess(process, own, gateway, conf.get("spark.master", ""))


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


def _driver_options(conf: Mapping[str, str]) -> list[str]:
    """Return the options that Spark's own launcher would read from the settings."""
    keys = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
    return [option for key in keys for option in shlex.split(conf.get(key, ""))]


def _hadoop_configuration() -> list[str]:
    """Return the folders in which Hadoop's classes look for their configuration, as for YARN."""
    variables = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
    return [folder for each in variables for folder in _entries(os.environ.get(each))]


def _entries(path: str | None) -> list[str]:
    return path.split(os.pathsep) if path else []


def _with_own_directories(conf: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Return the settings, with paths below the directory for all files of Spark. The sockets of
    Python workers are there only if tasks run on this machine, in this JVM.
    """
    sockets = "spark.python.unix.domain.socket"
    own = {
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    is_short = len(str(directory)) + len(f"/.{uuid.uuid4()}.sock") <= _LONGEST_SOCKET_PATH
    if is_short and is_local(conf.get("spark.master", "local")):
        own[f"{sockets}.dir"] = str(directory)
    settings = own | dict(conf)
    if f"{sockets}.dir" not in settings:
        settings[f"{sockets}.enabled"] = "false"
    return settings


def properties_text(properties: Mapping[str, str]) -> str:
    """Return the text of a Java property file. A file, because a command line exposes secrets."""
    table = str.maketrans(
        {"\n": "\\n", "\r": "\\r"} | {special: f"\\{special}" for special in "\\=: #!"}
    )
    return "".join(
        f"{key.translate(table)}={value.translate(table)}\n" for key, value in properties.items()
    )
