"""The first rows of a query over a sample of its real input, for the editor.

A pipeline of the declarations and one SELECT with a LIMIT runs in a process of its own, with state
in a folder that is deleted afterwards. It reads real sources, and writes to no sink.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from resurgence.config import ENVIRONMENT_PREFIX
from resurgence.errors import UserError
from resurgence.sql.catalog.declared_names import declarations_and_queries

DEADLINE = timedelta(seconds=90)
ROWS = 20
SAMPLE_ROWS = 10_000
"""Rows that an epoch reads of each source."""
_SIGNAL_GAP, _LAST_PATIENCE = 1.0, 20.0
_LOOK, _QUIET = 0.2, 5.0
"""Seconds: how often to look for rows, and when to expect no more."""
_SECTIONS = ("pipeline.", "spark.", "storage.", "connectors.")
"""The settings that matter to a preview."""
_NO_HINT = "Check that its sources can be read."


class PreviewFailed(UserError):
    """The query of a preview failed."""

    code = "preview.failed"


@dataclass(frozen=True)
class PreviewedRows:
    """The rows that were found in time."""

    rows: tuple[dict[str, Any], ...]
    is_complete: bool
    """The query ended by itself."""


def preview_text(sql: str, query: str = "") -> str:
    """Return the pipeline of a preview: the declarations of a text, and a query over them; by
    default the query of its last statement that has one.
    """
    declarations, queries = declarations_and_queries(sql)
    chosen = query.strip().rstrip(";").strip() or (queries[-1] if queries else "")
    if not chosen:
        raise UserError("there is no query to preview", hint="Write INSERT INTO or SELECT.")
    head = "".join(f"{each};\n" for each in declarations)
    return f"{head}SELECT * FROM (\n{chosen}\n) LIMIT {ROWS};\n"


def previewed_rows(
    text: str,
    functions: str | None,
    settings: Mapping[str, str],
    working_folder: Path,
    deadline: timedelta = DEADLINE,
) -> PreviewedRows:
    """Run a preview. Blocks until it ends, at most for `deadline`; then return what it has found.
    Relative paths are those of `working_folder`.
    """
    with tempfile.TemporaryDirectory(prefix="resurgence-preview-") as name:
        folder = Path(name)
        (folder / "preview.sql").write_text(text, encoding="utf-8")
        _write_settings(folder / "config.toml", settings)
        command = [sys.executable, "-m", "resurgence", "run", str(folder / "preview.sql")]
        command += ["--state-dir", str(folder / "state"), "--config", str(folder / "config.toml")]
        command += ["--events", str(folder / "events.jsonl"), "--epoch-rows", str(SAMPLE_ROWS)]
        if functions is not None:
            (folder / "functions.py").write_text(functions, encoding="utf-8")
            command += ["--udfs", str(folder / "functions.py")]
        with (folder / "rows").open("wb") as rows, (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=working_folder,
                stdin=subprocess.DEVNULL,
                stdout=rows,
                stderr=log,
                start_new_session=True,
                env=_environment(),
            )
            try:
                status = _wait(process, folder / "rows", deadline)
            finally:
                _end(process)
        found = tuple(_rows(folder / "rows"))
        if status and not found:
            raise _failure(folder)
        return PreviewedRows(found, status == 0)


def _wait(process: subprocess.Popen[bytes], rows: Path, deadline: timedelta) -> int | None:
    """Wait until the process ends, or no more rows come. Return its exit status; None if it goes
    on: its sources have fewer rows than asked for, and do not end.
    """
    give_up_at = time.monotonic() + deadline.total_seconds()
    size, grew_at = 0, time.monotonic()
    while process.poll() is None:
        now = time.monotonic()
        if rows.stat().st_size > size:
            size, grew_at = rows.stat().st_size, now
        if now > give_up_at or (size and now - grew_at > _QUIET):
            return None
        time.sleep(_LOOK)
    return process.returncode


def _write_settings(file: Path, settings: Mapping[str, str]) -> None:
    lines = [
        f"{json.dumps(key)} = {json.dumps(value)}\n"
        for key, value in settings.items()
        if key.startswith(_SECTIONS)
    ]
    with open(file, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
        opened.writelines(lines)


def _environment() -> dict[str, str]:
    """Return the environment without settings, which the file has."""
    return {key: each for key, each in os.environ.items() if not key.startswith(ENVIRONMENT_PREFIX)}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a run with its worker: the second signal does not wait for a checkpoint."""
    for patience in (_SIGNAL_GAP, _LAST_PATIENCE):
        if process.poll() is not None:
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _rows(file: Path) -> list[dict[str, Any]]:
    found = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            # Cut off by the deadline.
            continue
        if isinstance(row, dict):
            found.append(row)
    return found[:ROWS]


def _failure(folder: Path) -> PreviewFailed:
    """Return the error of the job, or the last line of the process."""
    events = folder / "events.jsonl"
    for line in reversed(events.read_text().splitlines() if events.exists() else []):
        event = json.loads(line)
        if event.get("event") == "failure":
            return PreviewFailed(str(event["error"]), hint=str(event.get("hint") or _NO_HINT))
    log = (folder / "log").read_text(errors="replace").strip().splitlines()
    return PreviewFailed(log[-1] if log else "the preview ended without an answer", hint=_NO_HINT)
