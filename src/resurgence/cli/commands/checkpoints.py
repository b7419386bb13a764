"""`resurgence checkpoints`: list, show and verify the retained checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resurgence.cli.output import console
from resurgence.cli.output.plain_table import bytes_text, count_text, span_text, table_lines
from resurgence.cli.output.waiting import waiting
from resurgence.cli.state_dir import (
    DEFAULT_STATE_DIR,
    AsJson,
    Debug,
    Name,
    StateDir,
    open_job,
    run_and_exit,
)
from resurgence.cli.whole_number import whole_number
from resurgence.errors import ConfigError, ResurgenceError, SourceRangeGone, SqlError, UserError
from resurgence.state.inspection.checkpoints import (
    CheckpointStatus,
    CheckpointView,
    checkpoint_of,
    kept_checkpoints,
    of_each_epoch,
)
from resurgence.state.records import (
    Manifest,
    OperatorCheckpointMetadata,
    TableCheckpoint,
    TableKind,
)

if TYPE_CHECKING:
    from resurgence.state.inspection.verification import SourceCheck, SourceFindings, Verification

commands = typer.Typer(no_args_is_help=True, help="Inspect and verify a job's checkpoints.")


@commands.command("list")
def list_command(
    state_dir: StateDir = DEFAULT_STATE_DIR,
    name: Name = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List the retained checkpoints."""
    run_and_exit(debug, lambda: list_checkpoints(state_dir, name, as_json))


@commands.command("show")
def show_command(
    epoch: Annotated[
        int, typer.Argument(parser=whole_number(), metavar="EPOCH", help="The epoch.")
    ],
    state_dir: StateDir = DEFAULT_STATE_DIR,
    name: Name = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show the contents of a checkpoint: operators, tables, files, offsets."""
    run_and_exit(debug, lambda: show_checkpoint(state_dir, name, epoch, as_json))


@commands.command("verify")
def verify_command(
    epoch: Annotated[
        int | None,
        typer.Argument(
            parser=whole_number(),
            metavar="EPOCH",
            help="The epoch; by default that of the newest checkpoint.",
        ),
    ] = None,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    name: Name = None,
    every: Annotated[bool, typer.Option("--all", help="Verify all retained checkpoints.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report, condemn nothing.")
    ] = False,
    sql: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.sql",
            help="The pipeline: also check that its sources still have the next input.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    udfs: Annotated[
        Path | None, typer.Option("--udfs", metavar="FILE.py", help="Python functions for the SQL.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Read every byte that checkpoints depend on. Condemn damaged ones, so that no restore uses
    them.
    """
    run_and_exit(debug, lambda: verify(state_dir, name, epoch, every, dry_run, sql, udfs))


# -------------------------------------------------------------------- list


def list_checkpoints(state_dir: str, name: str | None, as_json: bool) -> int:
    """Print the retained checkpoints, oldest first."""
    views = kept_checkpoints(open_job(state_dir, name))
    if as_json:
        print(json.dumps([_json_row(view) for view in views], indent=2))
        return 0
    if not views:
        print("there are no checkpoints yet")
        return 0
    header = (
        *("epoch", "attempt", "generation", "parent", "age", "operators", "state rows", "size"),
        *("files", "duration", "committed", "status"),
    )
    now = datetime.now(UTC)
    for line in table_lines(header, [_cells(view, now) for view in views]):
        print(line)
    for view in views:
        for reason in view.reasons:
            print(f"epoch {view.epoch}, {view.status}: {reason}")
    return 0


def _cells(view: CheckpointView, now: datetime) -> tuple[object, ...]:
    manifest = view.manifest
    return (
        view.epoch,
        view.attempt,
        manifest.generation if manifest else None,
        manifest.parent if manifest else None,
        span_text(now - manifest.sealed_at if manifest else None),
        len(manifest.operators) if manifest else None,
        view.rows if manifest else None,
        bytes_text(view.bytes) if manifest else None,
        len(view.files) if manifest else None,
        span_text(view.duration),
        view.is_committed,
        str(view.status),
    )


def _json_row(view: CheckpointView) -> dict[str, Any]:
    return {
        key: _instant(value) if isinstance(value, datetime) else value
        for key, value in view.summary().items()
    }


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()


# -------------------------------------------------------------------- show


def show_checkpoint(state_dir: str, name: str | None, epoch: int, as_json: bool) -> int:
    """Print the contents of a checkpoint."""
    view = checkpoint_of(kept_checkpoints(open_job(state_dir, name)), epoch)
    if as_json:
        print(json.dumps(_document(view), indent=2))
        return 0
    for line in _description(view):
        print(line)
    return 0


def _document(view: CheckpointView) -> dict[str, Any]:
    manifest = view.manifest
    return {
        **_json_row(view),
        "operators": {
            operator: {
                "path": digest.path,
                "bytes": digest.bytes,
                "sha256": digest.sha256,
                "metadata": view.operators[operator].model_dump(mode="json", exclude_none=True)
                if operator in view.operators
                else None,
            }
            for operator, digest in (manifest.operators if manifest else {}).items()
        },
        "inputs": {
            source: each.model_dump(mode="json")
            for source, each in (manifest.inputs if manifest else {}).items()
        },
    }


def _description(view: CheckpointView) -> Iterator[str]:
    manifest = view.manifest
    yield f"epoch {view.epoch}, attempt {view.attempt}: {view.status}"
    for reason in view.reasons:
        yield f"  {reason}"
    if view.committed_fault:
        yield f"  {view.committed_fault}"
    if manifest is None:
        return
    yield f"  generation {manifest.generation}, parent {manifest.parent or 'none'}"
    yield f"  sealed {_instant(manifest.sealed_at)}, after {span_text(view.duration)}"
    yield f"  {'committed' if view.is_committed else 'not committed yet'}"
    if manifest.finished:
        yield "  end of input: there is no next epoch"
    for operator, digest in manifest.operators.items():
        yield ""
        yield f"{operator}"
        yield f"  metadata {digest.path}, {digest.bytes:,} bytes, sha256 {digest.sha256}"
        if operator in view.operators:
            yield from _operator_lines(view.operators[operator])


def _operator_lines(metadata: OperatorCheckpointMetadata) -> Iterator[str]:
    mark = console.watermark_text(metadata.watermark)
    yield f"  parallelism {metadata.parallelism}, watermark {mark}"
    if metadata.timers:
        first = console.watermark_text(min(metadata.timers))
        yield f"  {count_text(len(metadata.timers), 'timer')}, the first at {first}"
    if metadata.input is not None:
        read = metadata.input
        final = ", final" if read.final else ""
        yield f"  read {read.rows:,} rows{final}: {json.dumps(read.start)} to {json.dumps(read.end)}"
    for name, table in metadata.tables.items():
        yield from _table_lines(name, table)


def _table_lines(name: str, table: TableCheckpoint) -> Iterator[str]:
    if table.kind is TableKind.GLOBAL:
        yield f"  table {name} ({table.kind}): {json.dumps(table.values)}"
        return
    rows, size = sum(each.rows for each in table.files), sum(each.bytes for each in table.files)
    yield f"  table {name} ({table.kind}): {count_text(len(table.files), 'file')}, {count_text(rows, 'row')}, {bytes_text(size)}"
    header = ("file", "epoch", "subtask", "rows", "bytes", "first bin", "last bin")
    cells = [
        (
            file.path.rsplit("/", 1)[-1],
            file.epoch,
            file.subtask,
            file.rows,
            file.bytes,
            console.watermark_text(file.time_start),
            console.watermark_text(file.time_end),
        )
        for file in table.files
    ]
    for line in table_lines(header, cells) if cells else ():
        yield f"    {line}"


# -------------------------------------------------------------------- verify


def verify(
    state_dir: str,
    name: str | None,
    epoch: int | None,
    every: bool,
    dry_run: bool,
    sql: Path | None,
    udfs: Path | None,
) -> int:
    """Verify checkpoints and condemn the damaged ones; return 1 if any is not valid."""
    from resurgence.state.inspection.verification import Verifier, condemn, condemnable

    if every and epoch is not None:
        raise ConfigError("an epoch and --all cannot be combined")
    check_sources = _source_check(sql, udfs) if sql is not None else None
    backend = open_job(state_dir, name)
    views = kept_checkpoints(backend)
    chosen = _to_verify(views, epoch, every)
    verifier = Verifier(backend, check_sources=check_sources)
    found = []
    all_valid = True
    for number, view in enumerate(chosen, start=1):
        if view.attempt is None or not view.stands:
            all_valid = False
            print(f"epoch {view.epoch}: not verified, already {view.status}")
            _print_reasons(view.reasons)
            continue
        with waiting(f"reading the checkpoint of epoch {view.epoch}") as wait:
            wait.step(number, len(chosen))
            verification = verifier.verify(backend.paths.manifest(view.epoch, view.attempt))
        found.append(verification)
        all_valid = all_valid and not verification.reasons
        print(_verdict(verification))
        _print_reasons(verification.reasons)
    if sql is None:
        print("sources were not checked; pass --sql FILE.sql to check them")
    if not dry_run:
        usable = {view.epoch for view in views if view.status is CheckpointStatus.VALID}
        to_condemn = condemnable(found, usable)
        for each in to_condemn:
            condemn(backend, each)
            print(f"epoch {each.epoch} is condemned: no restore will use it")
        if not to_condemn and any(each.faults for each in found):
            print(
                "nothing is condemned, because no other checkpoint is usable: "
                "restore the named objects from a backup"
            )
    return 0 if all_valid else 1


def _to_verify(
    views: Sequence[CheckpointView], epoch: int | None, every: bool
) -> list[CheckpointView]:
    if epoch is not None:
        return [checkpoint_of(views, epoch)]
    standing = [view for view in of_each_epoch(views).values() if view.stands]
    if not standing:
        raise ConfigError("there is no checkpoint to verify")
    return standing if every else standing[-1:]


def _verdict(verification: Verification) -> str:
    if verification.went:
        verdict = "no longer retained"
    elif verification.faults:
        verdict = "DAMAGED"
    elif verification.unchecked:
        verdict = "NOT CHECKED"
    elif verification.sources_gone:
        verdict = "intact, but its INPUT IS GONE"
    else:
        verdict = "intact"
    return (
        f"epoch {verification.epoch}: {verdict} ({count_text(verification.files, 'file')}, "
        f"{bytes_text(verification.bytes)}, {verification.seconds:.2f} s)"
    )


def _print_reasons(reasons: Sequence[str]) -> None:
    for reason in reasons:
        print(f"  {reason}")


def _source_check(sql: Path, udfs: Path | None) -> SourceCheck:
    """Return a check that the sources of the pipeline can be read from a checkpoint's offsets."""
    from resurgence.cli.pipeline_file import compile_file, read_sql
    from resurgence.connectors.registry import make_source
    from resurgence.secrets import concealer_for
    from resurgence.state.inspection.verification import SourceFindings

    try:
        graph = compile_file(read_sql(sql), udfs)
    except SqlError as error:
        raise UserError(
            f"{sql}:{error.line}:{error.column}: {error.message}", hint=error.hint
        ) from error
    sources = {each.id: make_source(each) for each in graph.sources()}
    concealer = concealer_for(each.options for each in graph.sources())

    def check(manifest: Manifest) -> SourceFindings:
        gone, unchecked = [], []
        for operator, source in sources.items():
            read = manifest.inputs.get(operator)
            if read is None:
                gone.append(
                    f"{operator} is not in the checkpoint: check that --sql is its pipeline"
                )
            elif not read.final:
                try:
                    with concealer.over_errors():
                        source.plan(read.end, 1, datetime.now(UTC))
                except (SourceRangeGone, UserError) as error:
                    gone.append(f"{operator}: {error.message}")
                except ResurgenceError as error:
                    unchecked.append(f"{operator} could not be checked: {error.message}")
        return SourceFindings(tuple(gone), tuple(unchecked))

    return check
