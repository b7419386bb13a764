"""The folder for what can be built or downloaded again: class-data archives, jars of connectors."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return our part of the user's cache. It may not exist yet."""
    cache = (
        os.environ.get("RESURGENCE_CACHE_DIR")
        or os.environ.get("XDG_CACHE_HOME")
        or Path.home() / ".cache"
    )
    return Path(cache, "resurgence")
