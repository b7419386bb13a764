"""The processes of a benchmark, as Linux describes them: which there are, and what they use.

Memory is the proportional set size: a page that several processes share, or a file that they map,
counts once in their sum. The part of it that belongs to files may be dropped by the kernel, and is
read again when it is needed.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

SAMPLE_SECONDS = 0.5


class Role(StrEnum):
    CONTROLLER = "controller"
    DRIVER = "driver"
    JVM = "JVM"
    PYTHON_WORKERS = "Python workers"
    OTHER = "other"


@dataclass(frozen=True)
class Usage:
    """What some processes use: memory in MiB."""

    memory: float = 0.0
    of_files: float = 0.0
    """The part of the memory that belongs to mapped files."""
    resident: float = 0.0
    """The sum of the resident set sizes, in which a shared page counts several times."""
    threads: int = 0
    open_files: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.memory + other.memory,
            self.of_files + other.of_files,
            self.resident + other.resident,
            self.threads + other.threads,
            self.open_files + other.open_files,
        )


def processes_of(leader: int) -> list[int]:
    """Return the processes of a session, and those below its leader."""
    parents: dict[int, int] = {}
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (each / "stat").read_text().rpartition(")")[2].split()
            parents[int(each.name)] = int(fields[1])
            if int(fields[3]) == leader:
                found.append(int(each.name))
    return [
        *found,
        *(each for each in parents.keys() - set(found) if _is_below(each, leader, parents)),
    ]


def _is_below(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        if pid == ancestor:
            return True
        pid = parents[pid]
    return False


def role_of(pid: int) -> Role:
    """Return what a process of a job does, by its command line."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return Role.OTHER
    if Path(words[0]).name == "java":
        return Role.JVM
    if any(each.endswith((".python_daemon", "pyspark.daemon")) for each in words):
        return Role.PYTHON_WORKERS
    if "resurgence.worker.process" in words:
        return Role.DRIVER
    if "resurgence" in words:
        return Role.CONTROLLER
    return Role.OTHER


def usage_of(pid: int) -> Usage:
    """Return what one process uses; nothing once it has ended."""
    folder = Path(f"/proc/{pid}")
    try:
        sizes = {
            name: int(rest.split()[0]) / 1024
            for name, _, rest in (
                line.partition(":")
                for line in (folder / "smaps_rollup").read_text().splitlines()[1:]
            )
        }
        return Usage(
            memory=sizes["Pss"],
            of_files=sizes["Pss_File"],
            resident=sizes["Rss"],
            threads=len([*(folder / "task").iterdir()]),
            open_files=len([*(folder / "fd").iterdir()]),
        )
    except OSError:
        return Usage()


def cpu_seconds(leader: int) -> float:
    """Return what the processes of a session, and those that they waited for, have used so far."""
    ticks = 0
    for pid in processes_of(leader):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def total(usages: Iterable[Usage]) -> Usage:
    return sum(usages, Usage())


class MemoryPeak:
    """The most memory that a process and those below it have used together, sampled in a thread."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._highest = Usage()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> MemoryPeak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def take(self) -> Usage:
        """Return the highest sample since the last call."""
        self._sample()
        with self._lock:
            highest, self._highest = self._highest, Usage()
        return highest

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self._sample()

    def _sample(self) -> None:
        found = total(usage_of(each) for each in processes_of(self._leader))
        with self._lock:
            self._highest = max(self._highest, found, key=lambda each: each.memory)
