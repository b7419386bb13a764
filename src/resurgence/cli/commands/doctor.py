"""`resurgence doctor`: check that this machine has what a job needs."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from resurgence.cli.output.plain_table import bytes_text, table_lines
from resurgence.cli.pipeline_file import apply_own_storage_settings
from resurgence.cli.state_dir import DEFAULT_STATE_DIR, Debug, StateDir, run_and_exit
from resurgence.engine.spark.class_archive import archive_path, failure_log, is_being_built
from resurgence.engine.spark.java import Java, find_java
from resurgence.errors import ConfigError, ResurgenceError
from resurgence.storage.object_store import (
    ObjectStore,
    require_writable,
    split_url,
    storage_url,
)

_LOW_SPACE = 1_000_000_000


class Condition(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    SLOW = "slow"
    """Jobs run, with a drawback."""
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    verdict: Condition
    detail: str


def doctor_command(state_dir: StateDir = DEFAULT_STATE_DIR, debug: Debug = False) -> None:
    """Check Java, the class-data archive, the temporary folder and the state directory."""

    def command() -> int:
        checks = list(examine(state_dir))
        rows = [(each.name, each.verdict, each.detail) for each in checks]
        print("\n".join(table_lines(("check", "", "detail"), rows)))
        return 1 if any(each.verdict is Condition.FAILED for each in checks) else 0

    run_and_exit(debug, command)


def examine(state_dir: str) -> Iterator[Finding]:
    """Run all checks in order."""
    try:
        java = find_java()
    except ConfigError as error:
        yield Finding("java", Condition.FAILED, f"{error.message}: {error.hint}")
    else:
        yield Finding("java", Condition.OK, f"{java.executable} ({java.version.splitlines()[0]})")
        yield class_archive(java)
    yield temporary_folder()
    yield state(state_dir)


def class_archive(java: Java) -> Finding:
    """Check the archive, without which every start of a worker takes longer."""
    name, archive = "class-data archive", archive_path(java)
    failed = failure_log(archive)
    if archive.is_file():
        return Finding(name, Condition.OK, f"{archive} ({bytes_text(archive.stat().st_size)})")
    if is_being_built(archive):
        return Finding(name, Condition.SLOW, f"is being built: {archive}")
    if failed.is_file():
        return Finding(name, Condition.SLOW, f"could not be built: see {failed}")
    return Finding(name, Condition.SLOW, f"missing: the next start of a job builds {archive}")


def temporary_folder() -> Finding:
    """Check the folder to which Spark spills."""
    name = "temporary folder"
    try:
        folder = tempfile.gettempdir()
        with tempfile.TemporaryFile() as file:
            file.write(b"x")
    except OSError as error:
        return Finding(name, Condition.FAILED, f"not writable: {error.strerror or error}")
    free = shutil.disk_usage(folder).free
    verdict = Condition.OK if free >= _LOW_SPACE else Condition.SLOW
    return Finding(name, verdict, f"{folder} ({bytes_text(free)} free)")


def state(state_dir: str) -> Finding:
    """Check that checkpoints can be written. A missing folder is not created."""
    name, url = "state dir", storage_url(state_dir)
    scheme, path = split_url(url)
    if scheme == "file" and not Path(path).exists():
        parent = next(each for each in Path(path).parents if each.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            return Finding(name, Condition.OK, f"{path} will be created")
        return Finding(name, Condition.FAILED, f"{path} cannot be created in {parent}")
    probe = f"doctor-{uuid.uuid4().hex[:8]}"
    try:
        apply_own_storage_settings()
        store = ObjectStore(url)
        require_writable(store)
        store.create(probe, b"")
        store.delete([probe])
    except ResurgenceError as error:
        return Finding(name, Condition.FAILED, error.message)
    return Finding(name, Condition.OK, f"{path if scheme == 'file' else url} is writable")
