"""The directory for all temporary files of a worker: those of its JVM, of Spark, of Python
functions and of the worker itself.

Its creator holds a lock on it as long as it lives. The lock of a process ends with the process, so
a directory without a lock is left over, and a sweep may delete it. The controller sweeps after the
end of each worker, and every worker when it starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "resurgence-worker-"
_NOT_YET_LOCKED = ".resurgence-worker-"
_LOCKED_WITHIN_SECONDS = 60.0


class TemporaryDirectory:
    """A directory that belongs to this process."""

    def __init__(self) -> None:
        # It gets the name that sweeps look for only after it is locked.
        unlocked = Path(tempfile.mkdtemp(prefix=_NOT_YET_LOCKED))
        self._lock: int | None = os.open(unlocked, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        name = unlocked.name.removeprefix(_NOT_YET_LOCKED)
        self.path = unlocked.rename(unlocked.with_name(f"{_PREFIX}{name}"))

    def delete(self) -> None:
        """Delete it with its content. Idempotent."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def sweep_temporary_directories(folder: Path | None = None) -> None:
    """Delete the directories of killed processes, in a folder or in the system's temporary one.
    Never raises.
    """
    for directory in _left_over(folder or Path(tempfile.gettempdir())):
        with contextlib.suppress(OSError):
            lock = os.open(directory, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(lock)


def _left_over(folder: Path) -> Iterator[Path]:
    """Yield directories that may be left over. Their lock decides whether they are."""
    yield from folder.glob(f"{_PREFIX}*")
    for directory in folder.glob(f"{_NOT_YET_LOCKED}*"):
        with contextlib.suppress(OSError):
            if time.time() - directory.stat().st_mtime > _LOCKED_WITHIN_SECONDS:
                yield directory
