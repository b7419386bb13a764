"""The sessions that were logged out before they ended. A cookie that someone has copied would
otherwise be valid again after a restart of the service.
"""

from __future__ import annotations

import json
import os
from pathlib import Path


class Logouts:
    """Ended sessions, in a file that controllers with the same secret share; in memory without."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._ended: dict[str, int] = {}
        """By session, when it would have ended."""
        self._read: tuple[int, int] | None = None
        """The version of the file."""

    def __contains__(self, session: str) -> bool:
        self._refresh()
        return session in self._ended

    def add(self, session: str, ends_at: int, now: float) -> None:
        """Note a logout. Those of sessions that have ended anyway are forgotten."""
        self._refresh()
        self._ended = {each: at for each, at in self._ended.items() if at > now}
        self._ended[session] = ends_at
        if self._file is None:
            return
        fresh = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        fresh.write_text(json.dumps(self._ended), encoding="utf-8")
        fresh.replace(self._file)

    def _refresh(self) -> None:
        try:
            if self._file is None:
                return
            found = self._file.stat()
            if self._read != (found.st_mtime_ns, found.st_ino):
                self._ended |= json.loads(self._file.read_text(encoding="utf-8"))
                self._read = (found.st_mtime_ns, found.st_ino)
        except FileNotFoundError:
            return
