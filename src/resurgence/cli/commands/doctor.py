"""`resurgence doctor`: collect the facts about this machine that `machine_health` judges."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from resurgence.cli.machine_health import (
    Archive,
    Condition,
    Finding,
    Machine,
    Ports,
    Space,
    Storage,
    judge,
)
from resurgence.cli.output.plain_table import table_lines
from resurgence.cli.pipeline_file import apply_own_storage_settings, settings_for
from resurgence.cli.state_dir import DEFAULT_STATE_DIR, AsJson, Debug, StateDir, run_and_exit
from resurgence.engine.spark.class_archive import archive_path, failure_log, is_being_built
from resurgence.engine.spark.connector_jars import folder_of, installed
from resurgence.engine.spark.jar_sets import JAR_SETS
from resurgence.engine.spark.java import Java, find_java
from resurgence.errors import ConfigError, ResurgenceError
from resurgence.storage.object_store import (
    ObjectStore,
    require_writable,
    split_url,
    storage_url,
)
from resurgence.worker.process import DEFAULT_MEMORY

_SERVICE_PORT = 7070
_CONNECT_SECONDS = 2.0
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def doctor_command(
    state_dir: StateDir = DEFAULT_STATE_DIR, as_json: AsJson = False, debug: Debug = False
) -> None:
    """Check Java, memory, the class-data archive, disks, storage, the clock, ports and jars."""

    def command() -> int:
        findings = list(judge(facts(state_dir)))
        if as_json:
            print(json.dumps([asdict(each) for each in findings], indent=2))
        else:
            print("\n".join(report(findings)))
        return 1 if any(each.verdict is Condition.FAILED for each in findings) else 0

    run_and_exit(debug, command)


def report(findings: Sequence[Finding]) -> list[str]:
    """Return the findings as a table, and the remedies below it."""
    rows = [(each.name, each.verdict, each.detail) for each in findings]
    remedies = [f"{each.name}: {each.remedy}" for each in findings if each.remedy]
    return [*table_lines(("check", "", "detail"), rows), *([""] if remedies else []), *remedies]


def facts(state_dir: str) -> Machine:
    """Collect the facts. Nothing is changed, and a state directory is not created."""
    java, error, hint = _java()
    settings = settings_for((), None)
    return Machine(
        java=None if java is None else f"{java.executable} ({java.version.splitlines()[0]})",
        java_error=error,
        java_hint=hint,
        archive=None if java is None else class_archive(java),
        heap=memory_bytes(settings.spark.get("spark.driver.memory", DEFAULT_MEMORY)),
        memory=_available_memory(),
        cores=os.cpu_count() or 1,
        temporary=temporary_folder(),
        storage=storage(state_dir),
        ports=ports(),
        now=datetime.now(UTC),
        jars={
            name: str(folder_of(name)) if installed(name) is not None else None for name in JAR_SETS
        },
        jars_folder=settings.connectors.jars,
    )


def _java() -> tuple[Java | None, str, str]:
    try:
        return find_java(), "", ""
    except ConfigError as error:
        return None, error.message, error.hint


def class_archive(java: Java) -> Archive:
    archive = archive_path(java)
    failed = failure_log(archive)
    return Archive(
        path=str(archive),
        size=archive.stat().st_size if archive.is_file() else None,
        is_being_built=is_being_built(archive),
        failure_log=str(failed) if failed.is_file() else None,
    )


def memory_bytes(text: str) -> int:
    """Return the bytes of a size as Spark writes it, such as 2g; 0 if it is none."""
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    return int(match[1]) * _UNITS.get(match[2], 1 << 20) if match else 0


def _available_memory() -> int | None:
    """Return what the system, and the limit of a container, leave."""
    found = []
    try:
        text = Path("/proc/meminfo").read_text()
        if match := re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE):
            found.append(int(match[1]) * 1024)
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        if limit.isdigit():
            found.append(max(0, int(limit) - used))
    except (OSError, ValueError):
        pass
    return min(found, default=None)


def temporary_folder() -> Space:
    """Look at the folder to which Spark spills."""
    try:
        folder = tempfile.gettempdir()
        with tempfile.TemporaryFile() as file:
            file.write(b"x")
    except OSError as error:
        return Space("", 0, error.strerror or str(error))
    return Space(folder, shutil.disk_usage(folder).free)


def storage(state_dir: str) -> Storage:
    """Write, list and delete an object. A missing folder is not created."""
    url = storage_url(state_dir)
    scheme, path = split_url(url)
    if scheme == "file" and not Path(path).exists():
        parent = next(each for each in Path(path).parents if each.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            return Storage(path, is_new=True)
        hint = "Make the folder writable, or choose another --state-dir."
        return Storage(path, error=f"{path} cannot be created in {parent}", hint=hint)
    probe = f"doctor-{uuid.uuid4().hex[:8]}"
    try:
        apply_own_storage_settings()
        store = ObjectStore(url)
        require_writable(store)
        began = time.monotonic()
        wrote_at = datetime.now(UTC)
        store.create(probe, b"")
        took = timedelta(seconds=time.monotonic() - began)
        skew = None if scheme == "file" else _skew(store, probe, wrote_at, took)
        store.delete([probe])
    except ResurgenceError as error:
        return Storage(
            url, error=error.message, hint=error.hint or "Check the access to the store."
        )
    return Storage(path if scheme == "file" else url, round_trip=took, skew=skew)


def _skew(store: ObjectStore, probe: str, wrote_at: datetime, took: timedelta) -> timedelta | None:
    """Return how far the store's clock is ahead: as far as is certain, because it has whole seconds
    and wrote at some time during the request.
    """
    stored = next(iter(store.files(probe[:-1])), None)
    if stored is None or stored.path != probe:
        return None
    at = datetime.fromtimestamp(stored.modified / 1_000_000, UTC)
    if at < wrote_at - timedelta(seconds=1):
        return at - wrote_at
    return max(timedelta(0), at - (wrote_at + took))


def ports() -> Ports:
    """Connect to ourselves, and look who listens on the port of a service."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
            socket.create_connection(address, _CONNECT_SECONDS).close()
    except OSError as error:
        return Ports(loopback_error=error.strerror or str(error))
    try:
        socket.create_connection(("127.0.0.1", _SERVICE_PORT), _CONNECT_SECONDS).close()
    except OSError:
        return Ports()
    return Ports(is_free=False, is_service=_is_service())


def _is_service() -> bool:
    import httpx

    try:
        url = f"http://127.0.0.1:{_SERVICE_PORT}/health"
        answer = httpx.get(url, timeout=_CONNECT_SECONDS, trust_env=False)
    except httpx.HTTPError:
        return False
    return bool(answer.headers.get("content-type", "").startswith("application/json"))
