"""`resurgence run`: one pipeline with an embedded controller and a worker process."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from resurgence.cli.output import console
from resurgence.cli.output.profile_tables import profile_lines
from resurgence.cli.pipeline_file import compile_file, local_folder, read_sql, settings_for
from resurgence.control.definitions.job_definition import JobDefinition
from resurgence.control.embedded import Beside, EmbeddedController
from resurgence.control.jobs.states import Failed, State
from resurgence.control.store.metadata import MetadataStore
from resurgence.control.telemetry.events import Event
from resurgence.errors import ConfigError, SqlError
from resurgence.faults import parse_faults
from resurgence.ids import job_name
from resurgence.repeated_lines import collapsing_log
from resurgence.storage.object_store import ObjectStore, require_writable, split_url, storage_url
from resurgence.storage.private_files import make_private_folder
from resurgence.store_settings import apply_storage_settings


@dataclass(frozen=True)
class RunOptions:
    """The flags of `run`."""

    file: Path
    state_dir: str
    name: str | None
    parallelism: int | None
    epoch_rows: int | None
    udfs: Path | None
    assignments: tuple[str, ...]
    config: Path | None
    events: str | None
    accept_state_loss: bool
    take_over: bool
    profile: bool
    debug: bool
    ui: bool = False


def run_file(options: RunOptions) -> int:
    """Run the pipeline; return the exit status."""
    sql = read_sql(options.file)
    name = job_name(options.name or options.file.stem)
    settings = settings_for(
        options.assignments,
        options.config,
        parallelism=options.parallelism,
        epoch_rows=options.epoch_rows,
        accept_state_loss=options.accept_state_loss,
        profile=options.profile,
    )
    parse_faults(settings.faults)
    apply_storage_settings(settings.storage)
    compile_file(sql, options.udfs)

    url = storage_url(options.state_dir)
    local = local_folder(url, name)
    store = _open(url)
    log_file = local / "logs" / f"{name}.log"
    definition = JobDefinition(
        name=name,
        sql=sql,
        state_url=url,
        settings=settings,
        compile=lambda text: compile_file(text, options.udfs),
        functions_file=options.udfs.absolute() if options.udfs else None,
        log_file=lambda _worker: log_file,
    )
    metadata = MetadataStore(local / "resurgence.db")
    with _event_writer(options.events) as write_event, console.ProgressView(name) as view:
        controller = EmbeddedController(
            definition,
            store,
            metadata,
            [write_event, view.note],
            take_over=options.take_over,
            beside=_console_beside() if options.ui else None,
        )
        try:
            with collapsing_log():
                state = asyncio.run(controller.run())
        finally:
            metadata.close()
    for line in profile_lines(controller.profiles):
        print(line, file=sys.stderr)
    return _conclude(state, options, log_file)


def _console_beside() -> Beside:
    """Return what serves the web console while the job runs."""
    from resurgence.cli.commands.job_console import console_beside

    return console_beside(lambda url: console.ERROR_CONSOLE.print(f"console: {url}"))


def _open(url: str) -> ObjectStore:
    scheme, path = split_url(url)
    if scheme == "file" and not Path(path).exists():
        try:
            make_private_folder(Path(path))
        except OSError as error:
            raise ConfigError(
                f"cannot create the state directory {path}: {error.strerror}",
                hint="Choose another --state-dir.",
            ) from error
    store = ObjectStore(url)
    require_writable(store)
    return store


def _conclude(state: State, options: RunOptions, log_file: Path) -> int:
    if not isinstance(state, Failed):
        return 0
    failure = state.failure
    if failure.code == SqlError.code and failure.line is not None and failure.column is not None:
        console.print_error(
            SqlError(failure.reason, line=failure.line, column=failure.column, hint=failure.hint),
            options.file,
        )
        return 2
    console.print_failure(
        f"the job failed ({failure.domain}): {state.reason}", state.given_up.advice
    )
    console.print_diagnosis(state.given_up)
    if options.debug and log_file.is_file():
        print(log_file.read_text(encoding="utf-8", errors="replace")[-20_000:], file=sys.stderr)
    else:
        console.ERROR_CONSOLE.print(f"[bold]log:[/] {log_file}")
    return 1


@contextlib.contextmanager
def _event_writer(target: str | None) -> Iterator[Callable[[Event], None]]:
    if target is None:
        yield lambda _event: None
    elif target == "-":
        yield console.json_lines_writer(sys.stdout)
    else:
        try:
            file = Path(target).open("a", encoding="utf-8")  # noqa: SIM115 - closed below
        except OSError as error:
            raise ConfigError(f"cannot write events to {target}: {error.strerror}") from error
        with file:
            yield console.json_lines_writer(file)
