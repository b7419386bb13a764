"""Local folders and files that only their owner can read, because state, logs and the metadata
database may contain data and secrets of users.

The mode of an existing folder is left unchanged, because someone chose it. The output of sinks is
not private; it is created with the umask of the user.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

FOLDER_MODE = 0o700
FILE_MODE = 0o600


def make_private_folder(path: Path) -> None:
    """Create a folder and its missing parents with mode 0700. `Path.mkdir` would apply the mode
    only to the last one.
    """
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=FOLDER_MODE, exist_ok=True)
    path.mkdir(exist_ok=True)  # fails if the path is a file


def open_private_log(path: Path) -> BinaryIO:
    """Open a log for appending. A new log has mode 0600, in a private folder."""
    make_private_folder(path.parent)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE), "ab")
