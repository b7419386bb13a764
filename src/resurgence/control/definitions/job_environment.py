"""The environment of a service's jobs: turns a stored pipeline into a `JobDefinition`."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
import uuid
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from resurgence.config import settings_from
from resurgence.connectors.path_overlap import require_separate_paths
from resurgence.connectors.registry import CONNECTORS
from resurgence.control.definitions.function_kinds import function_kinds
from resurgence.control.definitions.job_definition import JobDefinition
from resurgence.control.jobs.job_record import PipelineRecord
from resurgence.faults import parse_faults
from resurgence.graph.model import Graph
from resurgence.ids import JobName
from resurgence.sql import compile_pipeline
from resurgence.storage.private_files import make_private_folder

_RETAINED_LOGS = 20
_UNUSED_FUNCTIONS = timedelta(minutes=10)
"""Longer than a compilation or a preview takes."""
_STORAGE = "storage."
"""The controller opens the stores of all jobs with its own settings."""


@dataclass(frozen=True)
class JobEnvironment:
    """The service's folder and defaults."""

    state_url: str
    """The default for jobs that do not set their own."""
    folder: Path
    """Holds logs and the source of functions."""
    settings: dict[str, str] = field(default_factory=dict)
    """Settings of all jobs, by dotted key; a job's own settings override them."""

    def define(self, name: JobName, pipeline: PipelineRecord) -> JobDefinition:
        """Return the definition of a job. Raise ConfigError if its settings are invalid."""
        own = {key: each for key, each in pipeline.settings.items() if not key.startswith(_STORAGE)}
        settings = settings_from({**self.settings, **own})
        parse_faults(settings.faults)
        module = self._module(name, pipeline.functions)

        def compile_text(sql: str) -> Graph:
            kinds = {}
            if module is not None:
                _write_once(module, pipeline.functions or "")
                kinds = function_kinds(module, module.with_suffix(f".{uuid.uuid4().hex[:8]}"))
            graph = compile_pipeline(sql, CONNECTORS, kinds)
            require_separate_paths(graph)
            return graph

        return JobDefinition(
            name=name,
            sql=pipeline.sql,
            state_url=pipeline.state_url,
            settings=settings,
            compile=compile_text,
            functions_file=module,
            log_file=lambda worker: self._logs(name) / f"{worker}.log",
        )

    def log_files(self, name: JobName) -> list[Path]:
        """Return the log files of a job's workers, the newest last."""
        return sorted(self._logs(name).glob("*.log"), key=_changed_at)

    def tidy_logs(self, name: JobName) -> None:
        """Remove all but the newest logs of a job."""
        for file in self.log_files(name)[:-_RETAINED_LOGS]:
            _remove(file)

    def tidy_functions(self, name: JobName) -> None:
        """Remove the functions that were last compiled a while ago. For pipelines that are of no
        job: nothing else uses theirs.
        """
        for file in (self.folder / "functions" / name).glob("*.py"):
            if time.time() - _changed_at(file) > _UNUSED_FUNCTIONS.total_seconds():
                _remove(file)

    def remove(self, name: JobName) -> None:
        """Remove the logs and functions of a job."""
        for file in self.log_files(name):
            _remove(file)
        for folder in (self._logs(name), self.folder / "functions" / name):
            shutil.rmtree(folder, ignore_errors=True)

    def _logs(self, name: JobName) -> Path:
        return self.folder / "logs" / name

    def _module(self, name: JobName, functions: str | None) -> Path | None:
        """Return the path for a job's functions. It contains their digest, so that a worker never
        reads another version under the same name.
        """
        if functions is None:
            return None
        digest = hashlib.sha256(functions.encode()).hexdigest()[:12]
        return (self.folder / "functions" / name / f"functions_{digest}.py").absolute()


def _changed_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _remove(file: Path) -> None:
    with contextlib.suppress(OSError):
        if file.is_symlink():
            file.resolve().unlink(missing_ok=True)
        file.unlink()


def _write_once(module: Path, text: str) -> None:
    """Write the module atomically, and never again, because a worker may be reading it."""
    if module.exists():
        module.touch()
    else:
        make_private_folder(module.parent)
        fresh = module.with_suffix(f".{uuid.uuid4().hex[:8]}")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(module)
