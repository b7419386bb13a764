"""Which staged files are checked before they are committed."""

from __future__ import annotations

from resurgence.connectors.contract import StagedFile
from resurgence.connectors.lakehouse.data_files import files_prefix
from resurgence.connectors.lakehouse.staged_files import staged_by_others
from resurgence.ids import Epoch, Generation, JobIdentity


def staged(generation: int) -> StagedFile:
    prefix = files_prefix("resurgence", JobIdentity("a1b2"), Epoch(7), Generation(generation))
    return StagedFile(path=f"{prefix}-0f3c.parquet", rows=1, bytes=1)


def test_only_files_of_other_generations_are_checked() -> None:
    files = [staged(1), staged(2), staged(12)]
    assert staged_by_others(files, Generation(2)) == [staged(1), staged(12)]
    assert staged_by_others(files, None) == files
