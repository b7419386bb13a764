"""A job as its user defined it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from resurgence.config import Settings
from resurgence.graph.model import Graph
from resurgence.ids import JobName, WorkerId


@dataclass(frozen=True)
class JobDefinition:
    """The pipeline as its user wrote it, and where its state is stored."""

    name: JobName
    sql: str
    state_url: str
    settings: Settings
    compile: Callable[[str], Graph]
    functions_file: Path | None = None
    log_file: Callable[[WorkerId], Path] = lambda worker: Path(f"{worker}.log")
