"""What a preview is asked for, and what it answers."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from resurgence.config import StorageSettings
from resurgence.graph.model import Graph


class PreviewRequest(BaseModel):
    """The order for a preview; plain JSON, passed to the process that computes it."""

    model_config = ConfigDict(frozen=True)

    graph: Graph
    functions_file: str | None = None
    rows: int = Field(default=10, ge=1)
    """Of each output table."""
    sample: int = Field(default=10_000, ge=1)
    """Rows that are read from each source."""
    patience: float = Field(default=3.0, ge=0)
    """How long to wait for the rows of a source that has none or few, in seconds."""
    spark: dict[str, str] = Field(default_factory=dict)
    storage: StorageSettings = StorageSettings()


class PreviewedTable(BaseModel):
    """The first rows of one output table."""

    model_config = ConfigDict(frozen=True)

    table: str
    columns: list[str]
    rows: list[list[Any]]
    """Values as in a JSON sink."""
    is_complete: bool
    """There are no more rows for this sample."""


class Preview(BaseModel):
    """The answer to a request."""

    model_config = ConfigDict(frozen=True)

    tables: list[PreviewedTable]
    rows_read: dict[str, int]
    """By source table."""
    rows_bad: dict[str, int] = Field(default_factory=dict)
    """By source table: the rows that were left out because their records cannot be parsed."""


class PreviewFailure(BaseModel):
    """The error of a preview, as it travels from its process."""

    model_config = ConfigDict(frozen=True)

    message: str
    hint: str = ""
    position: str = ""
    is_users: bool
    line: int | None = None
    column: int | None = None


class PreviewAnswer(BaseModel):
    """Either a preview or an error."""

    model_config = ConfigDict(frozen=True)

    preview: Preview | None = None
    failure: PreviewFailure | None = None
