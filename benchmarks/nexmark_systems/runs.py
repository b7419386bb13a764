"""A run: one query in one system, several times in one process, each time into a folder of its own.

The process gets the run as JSON and prints one line of JSON for each repetition.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.nexmark_systems.events import Events
from benchmarks.nexmark_systems.queries import System
from benchmarks.processes import processes_of

CORES = 2
MEMORY = "4g"
_LONGEST_ERROR = 1500


@dataclass(frozen=True)
class Run:
    system: System
    query: str
    events: Events
    folder: Path
    repetitions: int
    """Without those that warm up."""

    def as_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @staticmethod
    def from_json(text: str) -> Run:
        found = json.loads(text)
        events = Events(**found.pop("events"))
        system, folder = System(found.pop("system")), Path(found.pop("folder"))
        return Run(system=system, events=events, folder=folder, **found)


@dataclass(frozen=True)
class Repetition:
    """What one execution of the query needed, and where its output is."""

    seconds: float
    cpu_seconds: float
    """Of all processes of the system, the compiler and the garbage collector included."""
    output: str
    is_warm: bool
    variant: str = ""

    def print(self) -> None:
        print(json.dumps(asdict(self)), flush=True)


class RunFailed(Exception):
    """A system has no figure for a query."""


def execute(
    command: Sequence[str], deadline: float, environment: Mapping[str, str] | None = None
) -> list[Repetition]:
    """Run a process to its end. Raise RunFailed if it fails or exceeds the deadline in seconds."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"no result within {deadline:.0f} s") from None
        finally:
            # A JVM and Python workers may outlive the process that started them.
            for each in processes_of(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
    if process.returncode != 0:
        raise RunFailed((errors.strip() or output.strip())[-_LONGEST_ERROR:])
    return repetitions_of(output)


def repetitions_of(output: str) -> list[Repetition]:
    """Return the repetitions that a process printed, among other lines."""
    lines = (line for line in output.splitlines() if line.startswith("{"))
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [Repetition(**each) for each in found]
