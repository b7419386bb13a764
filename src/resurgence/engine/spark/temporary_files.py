"""The directory that holds all temporary files of a worker: those of its JVM, of Spark, of Python
functions and of the worker itself.

Whoever makes one holds a lock on it for as long as it lives. The lock of a process that ended is gone
with it, so a directory without a lock is left over, and whoever sweeps may delete it: the controller after
the end of each worker, and every worker when it starts.
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
    """A directory of this process's own."""

    def __init__(self) -> None:
        # It gets the name that others look for only when it is locked.
        unlocked = Path(tempfile.mkdtemp(prefix=_NOT_YET_LOCKED))
        self._lock: int | None = os.open(unlocked, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        name = unlocked.name.removeprefix(_NOT_YET_LOCKED)
        self.path = unlocked.rename(unlocked.with_name(f"{_PREFIX}{name}"))

    def delete(self) -> None:
        """Delete it with all that is in it. Calling again does nothing."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def sweep_temporary_directories(folder: Path | None = None) -> None:
    """Delete the directories whose process was killed, in a folder or in the system's temporary one.
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
    """Directories that may be; whether they are, their lock says."""
    yield from folder.glob(f"{_PREFIX}*")
    for directory in folder.glob(f"{_NOT_YET_LOCKED}*"):
        with contextlib.suppress(OSError):
            if time.time() - directory.stat().st_mtime > _LOCKED_WITHIN_SECONDS:
                yield directory
