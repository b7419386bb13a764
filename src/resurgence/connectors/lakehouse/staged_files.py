"""Whether staged data files are still there when they are committed.

No table refers to them until then, so tools that remove files without a reference, such as vacuum,
may remove them while a job is down. A commit would succeed without them, and leave a table that
cannot be read. Files that this process has staged itself are not checked: that would cost a request
per file in every epoch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

from resurgence.connectors.contract import StagedFile
from resurgence.errors import SinkError
from resurgence.ids import Generation
from resurgence.storage.parallel import in_parallel


def missing_files(paths: Iterable[str], exists: Callable[[str], bool]) -> list[str]:
    """Return those of some files that do not exist."""
    listed = sorted(paths)
    found = in_parallel([functools.partial(exists, each) for each in listed])
    return [each for each, is_there in zip(listed, found, strict=True) if not is_there]


def staged_by_others(
    files: Sequence[StagedFile], generation: Generation | None
) -> list[StagedFile]:
    """Return the data files that were not staged by this generation; it is None if that has not
    staged anything yet.
    """
    return [each for each in files if _generation_of(each.path) != str(generation)]


def require_staged(place: str, paths: Iterable[str], exists: Callable[[str], bool]) -> None:
    """Raise SinkError if staged files do not exist."""
    if missing := missing_files(paths, exists):
        raise SinkError(
            f"staged output of {place} is missing: {len(missing)} data files do not exist, such as"
            f" {missing[0]}",
            hint="Restore them from a backup, or roll the job back to an earlier checkpoint. They"
            " were removed while the job was down, as by a vacuum.",
        )


def _generation_of(path: str) -> str:
    """Return the generation in the name of a file, as `files_prefix` has it."""
    parts = path.rsplit("/", 1)[-1].split("-")
    return parts[1] if len(parts) > 1 else ""
