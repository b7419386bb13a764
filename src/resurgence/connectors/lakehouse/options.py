"""The options that sinks of lakehouse tables share."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from pydantic import Field

from resurgence.connectors.byte_size import SIZE_HINT, ByteSize
from resurgence.connectors.lakehouse.data_files import SortField
from resurgence.connectors.lakehouse.merge_plan import MergePolicy
from resurgence.errors import UserError, did_you_mean
from resurgence.graph.table_options import TableOptions, option


def names_in(text: str | None) -> tuple[str, ...]:
    """Return names that are separated by commas."""
    return tuple(each.strip() for each in text.split(",") if each.strip()) if text else ()


def sort_fields(text: str | None) -> tuple[SortField, ...]:
    """Return the columns in a text as in `day, amount DESC`."""
    found = []
    for each in names_in(text):
        words = each.split()
        is_descending = len(words) > 1 and words[-1].upper() == "DESC"
        is_marked = len(words) > 1 and words[-1].upper() in ("ASC", "DESC")
        found.append(SortField(" ".join(words[:-1] if is_marked else words), is_descending))
    return tuple(found)


def require_columns(option_name: str, named: Collection[str], columns: Collection[str]) -> None:
    """Raise UserError if an option names a column that the rows do not have."""
    known = {each.lower() for each in columns}
    for each in named:
        if each.lower() not in known:
            raise UserError(
                f"there is no column '{each}', which '{option_name}' names",
                hint=did_you_mean(each, columns) or "Name columns of the table.",
            )


class LakehouseSinkOptions(TableOptions):
    """Where rows are written to in the files of a table."""

    sort_by: str | None = option(
        "the columns by which the rows of each file are sorted, separated by commas, each"
        " optionally followed by `DESC`. By default rows are not sorted",
        default=None,
        name="sort.fields",
    )
    target_bytes: ByteSize = option(
        "a file that has grown to this size is complete, and another one is begun, as in `64MB`;"
        " `128MiB` by default",
        default=128 * 2**20,
        name="rolling_policy.file_size",
        hint=SIZE_HINT,
    )
    min_files: Annotated[int, Field(ge=2, le=10_000)] | None = option(
        "merge small files beside the epochs, when a partition has at least this many of similar"
        " size, as in `10`. Files of half the target size and more are not merged. By default no"
        " files are",
        default=None,
        name="compaction.min_files",
        hint="Use a whole number from 2 to 10000.",
    )

    @property
    def merge_policy(self) -> MergePolicy | None:
        """When files are merged; None if they are not."""
        return None if self.min_files is None else MergePolicy(self.min_files, self.target_bytes)
