"""From a user's files and flags to a graph and settings."""

from __future__ import annotations

from pathlib import Path

from resurgence.config import Settings, load_settings
from resurgence.connectors.registry import CONNECTORS
from resurgence.graph.model import Graph
from resurgence.sql import compile_pipeline
from resurgence.udf import load_functions

DEFAULT_CONFIG = Path("resurgence.toml")


def compile_file(sql: str, udfs: Path | None) -> Graph:
    """The graph of a pipeline's text."""
    functions = {name: each.kind for name, each in load_functions(udfs).items()}
    return compile_pipeline(sql, CONNECTORS, functions)


def settings_for(
    assignments: tuple[str, ...],
    config: Path | None,
    *,
    parallelism: int | None = None,
    epoch_rows: int | None = None,
) -> Settings:
    """Settings from the TOML file, the environment, `--set` and the flags, the later winning."""
    flags = {"pipeline.parallelism": parallelism, "pipeline.epoch_rows": epoch_rows}
    given = tuple(f"{key}={value}" for key, value in flags.items() if value is not None)
    toml_file = config or (DEFAULT_CONFIG if DEFAULT_CONFIG.is_file() else None)
    return load_settings((*assignments, *given), toml_file=toml_file)
