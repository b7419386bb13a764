"""What the commit log has of an epoch of a Delta sink: the staged files that are its output. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue, ValidationError

from resurgence.connectors.contract import StagedFile, StagedOutput
from resurgence.connectors.lakehouse.copy_on_write import KEY_RANGES
from resurgence.errors import SinkError
from resurgence.ids import Epoch


def record_of(staged: StagedOutput) -> dict[str, JsonValue]:
    """Return the content of a record that fixes these files."""
    return {
        "files": [each.path for each in staged.files],
        "rows": [each.rows for each in staged.files],
        "bytes": [each.bytes for each in staged.files],
        "details": [{**each.details} for each in staged.files],
    }


def fixed_files(content: Mapping[str, JsonValue], epoch: Epoch) -> tuple[StagedFile, ...]:
    """Return the files that an epoch's record fixes; none if the epoch was rolled back."""
    lists = [content.get(each, []) for each in ("files", "rows", "bytes", "details")]
    try:
        listed = [*zip(*(each for each in lists if isinstance(each, list)), strict=True)]
        names = ("path", "rows", "bytes", "details")
        return tuple(
            StagedFile.model_validate(dict(zip(names, each, strict=True))) for each in listed
        )
    except (ValidationError, ValueError) as error:
        raise SinkError(
            f"the commit record of epoch {epoch} is damaged",
            hint="Restore the records of the sink from a backup.",
        ) from error


def are_changes(files: Sequence[StagedFile]) -> bool:
    """Return whether files are staged changes, and not files of the table."""
    return any(KEY_RANGES in each.details for each in files)
