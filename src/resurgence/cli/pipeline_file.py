"""Conversion of a user's files and flags to a graph and settings."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from resurgence.config import Settings, load_settings, setting_values
from resurgence.connectors.path_overlap import require_separate_paths
from resurgence.connectors.registry import CONNECTORS
from resurgence.errors import SqlError
from resurgence.graph.model import Graph
from resurgence.sql import compile_pipeline
from resurgence.storage.object_store import split_url
from resurgence.store_settings import apply_storage_settings
from resurgence.udf import load_functions

DEFAULT_CONFIG = Path("resurgence.toml")


def read_sql(file: Path) -> str:
    """Return the text of a pipeline file; raise SqlError at the first byte that is not UTF-8."""
    data = file.read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        raise SqlError(
            f"the file is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}",
            line=before.count("\n") + 1,
            column=len(before) - (before.rfind("\n") + 1) + 1,
            hint="Save the file as UTF-8.",
        ) from error


def compile_file(sql: str, udfs: Path | None) -> Graph:
    """Compile the text of a pipeline."""
    functions = {name: each.kind for name, each in load_functions(udfs).items()}
    graph = compile_pipeline(sql, CONNECTORS, functions)
    require_separate_paths(graph)
    return graph


def local_folder(state_url: str, job: str) -> Path:
    """Return the folder of a job's logs and metadata database: its state dir if that is local."""
    scheme, path = split_url(state_url)
    if scheme == "file":
        return Path(path)
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    digest = hashlib.sha256(state_url.encode()).hexdigest()[:12]
    return cache / "resurgence" / digest / job


def service_folder(state_url: str) -> Path:
    """Return the folder of a service's database and logs: beside its jobs, with no valid job name."""
    scheme, path = split_url(state_url)
    return (Path(path) if scheme == "file" else local_folder(state_url, "")) / ".service"


def settings_for(
    assignments: tuple[str, ...],
    config: Path | None,
    *,
    parallelism: int | None = None,
    epoch_rows: int | None = None,
    accept_state_loss: bool = False,
    profile: bool = False,
) -> Settings:
    """Load settings from the TOML file, the environment, `--set` and the flags; the last wins."""
    flags = {
        "pipeline.parallelism": parallelism,
        "pipeline.epoch_rows": epoch_rows,
        "checkpoint.accept_state_loss": accept_state_loss or None,
        "pipeline.profile": profile or None,
    }
    from_flags = tuple(f"{key}={value}" for key, value in flags.items() if value is not None)
    return load_settings((*assignments, *from_flags), toml_file=config or _default_config())


def values_for(assignments: tuple[str, ...], config: Path | None) -> dict[str, str]:
    """Return the values set in the TOML file, the environment and by `--set`, by dotted key."""
    return setting_values(assignments, toml_file=config or _default_config())


def apply_own_storage_settings() -> None:
    """Apply the storage settings of a command without `--set`: from the environment and the default
    TOML file.
    """
    apply_storage_settings(load_settings(toml_file=_default_config()).storage)


def _default_config() -> Path | None:
    return DEFAULT_CONFIG if DEFAULT_CONFIG.is_file() else None
