"""`resurgence dead-letters`: the records that a job could not process, and their replay.

With the name of a job, a service is asked. On a state directory this process reads the table itself,
also while the job runs: nothing is claimed, and a replay is a request that the job picks up.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resurgence.api.models import (
    MOST_LETTER_ROWS,
    CorrectedLetter,
    DeadLetter,
    DeadLetters,
    LetterQuery,
    Replayed,
    ReplayOrder,
)
from resurgence.cli.output.plain_table import count_text, table_lines
from resurgence.cli.output.query_rows import OutputFormat, print_rows
from resurgence.cli.service_client import DEFAULT_SERVER, ServiceClient
from resurgence.cli.service_flags import KeyFile, Server, call_service
from resurgence.cli.state_dir import (
    DEFAULT_STATE_DIR,
    AsJson,
    Debug,
    Name,
    open_job,
    run_and_exit,
)
from resurgence.cli.whole_number import whole_number
from resurgence.clock import SystemClock
from resurgence.errors import ConfigError, UserError

if TYPE_CHECKING:
    from resurgence.state.inspection.dead_letters import Correction, Letters

commands = typer.Typer(
    no_args_is_help=True, help="Inspect and replay the records that a job could not process."
)

_ONLY_OF_SOME = ("raw_base64", "key", "headers", "record_timestamp")
"""Fields that most dead letters do not have."""
_LONGEST_ERROR = 100
"""Characters of an error in a printed table."""

Job = Annotated[str | None, typer.Argument(metavar="[NAME]", help="A job of the service.")]
Dir = Annotated[
    str | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help=f"Without a service: where checkpoints are stored; by default {DEFAULT_STATE_DIR}.",
    ),
]
OfEpoch = Annotated[
    int | None,
    typer.Option("--epoch", parser=whole_number(), metavar="N", help="Only those of an epoch."),
]
OfOperator = Annotated[
    str | None,
    typer.Option("--operator", metavar="ID", help="Only those of an operator or a source."),
]
Where = Annotated[
    str | None,
    typer.Option("--where", metavar="SQL", help="Only those for which a condition is true."),
]
Limit = Annotated[
    int,
    typer.Option("--limit", parser=whole_number(1), metavar="N", help="Only the newest N."),
]


@commands.command("list")
def list_command(
    job: Job = None,
    epoch: OfEpoch = None,
    operator: OfOperator = None,
    where: Where = None,
    limit: Limit = 1000,
    state_dir: Dir = None,
    name: Name = None,
    as_json: AsJson = False,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """List dead letters, oldest first. With --json, one object per line."""
    if job is not None and state_dir is None:

        def request(client: ServiceClient) -> int:
            _refuse(where, "--where")
            return _print(client.dead_letters(job, epoch, operator, limit), as_json)

        call_service(server, key_file, debug, request, name=job)

    def command() -> int:
        from resurgence.api.dead_letter_answer import letters_answer

        letters = _letters(state_dir, job or name, epoch, operator, None, where, limit)
        return _print(letters_answer(letters), as_json)

    run_and_exit(debug, command)


@commands.command("show")
def show_command(
    letter: Annotated[str, typer.Argument(metavar="ID", help="The id, as in `list`.")],
    job: Job = None,
    state_dir: Dir = None,
    name: Name = None,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """Show one dead letter with its raw record."""
    if job is not None and state_dir is None:
        call_service(
            server, key_file, debug, lambda client: _show(client.dead_letter(job, letter)), name=job
        )

    def command() -> int:
        from resurgence.api.dead_letter_answer import letters_answer

        return _show(letters_answer(_letters(state_dir, job or name, ids=[letter])))

    run_and_exit(debug, command)


@commands.command("query")
def query_command(
    sql: Annotated[
        str,
        typer.Argument(metavar="SQL", help="A SELECT from dead_letters, in DuckDB's dialect."),
    ],
    job: Job = None,
    state_dir: Dir = None,
    name: Name = None,
    layout: Annotated[
        OutputFormat, typer.Option("--format", help="The output format.")
    ] = OutputFormat.TABLE,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """Query the table dead_letters, read-only."""
    if job is not None and state_dir is None:

        def request(client: ServiceClient) -> int:
            found = client.query_dead_letters(job, LetterQuery(sql=sql, limit=MOST_LETTER_ROWS))
            print_rows(found.columns, map(tuple, found.rows), layout)
            if found.has_more:
                print(
                    f"only the first {MOST_LETTER_ROWS:,} rows are shown; a service returns no more",
                    file=sys.stderr,
                )
            return 0

        call_service(server, key_file, debug, request, name=job)

    def command() -> int:
        from resurgence.state.inspection.dead_letters import dead_letters
        from resurgence.state.inspection.letter_database import LetterDatabase, columns_of_query

        backend = open_job(state_dir or DEFAULT_STATE_DIR, job or name)
        letters = dead_letters(backend, columns=columns_of_query(sql))
        with LetterDatabase(letters.rows) as database:
            print_rows(*database.query(sql), layout)
        return 0

    run_and_exit(debug, command)


@commands.command("replay")
def replay_command(
    job: Job = None,
    epoch: OfEpoch = None,
    operator: OfOperator = None,
    where: Where = None,
    letter: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Only this one; can be repeated."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help="Corrected records: lines of `list --json` with another `raw`.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also those that were replayed before.")
    ] = False,
    state_dir: Dir = None,
    name: Name = None,
    as_json: AsJson = False,
    server: Server = DEFAULT_SERVER,
    key_file: KeyFile = None,
    debug: Debug = False,
) -> None:
    """Read dead letters again, as input of a later epoch, exactly once."""
    if job is not None and state_dir is None:

        def request(client: ServiceClient) -> int:
            _refuse(where, "--where")
            corrected = _corrected(file)
            order = ReplayOrder(
                epoch=epoch,
                operator=operator,
                ids=_ids(letter, corrected),
                corrected=[_sent(each, correction) for each, correction in corrected.items()],
                again=again,
            )
            return _print_replayed(client.replay(job, order), as_json)

        call_service(server, key_file, debug, request, name=job)

    def command() -> int:
        from resurgence.api.dead_letter_answer import replayed_answer
        from resurgence.state.inspection.dead_letters import request_replay

        corrected = _corrected(file)
        backend = open_job(state_dir or DEFAULT_STATE_DIR, job or name)
        ids = _ids(letter, corrected)
        letters = _letters(state_dir, job or name, epoch, operator, ids, where)
        now = SystemClock().now()
        outcome = request_replay(backend, letters.rows, now, corrected=corrected, again=again)
        return _print_replayed(replayed_answer(outcome), as_json)

    run_and_exit(debug, command)


# -------------------------------------------------------------------- input


def _letters(
    state_dir: str | None,
    name: str | None,
    epoch: int | None = None,
    operator: str | None = None,
    ids: list[str] | None = None,
    where: str | None = None,
    newest: int | None = None,
) -> Letters:
    from resurgence.state.inspection.dead_letters import LetterFilter, Letters, dead_letters
    from resurgence.state.inspection.letter_database import LetterDatabase, columns_of_condition

    backend = open_job(state_dir or DEFAULT_STATE_DIR, name)
    wanted = LetterFilter(epoch, operator, None if ids is None else frozenset(ids))
    if where is None:
        return dead_letters(backend, wanted, newest)
    candidates = dead_letters(backend, wanted, columns=columns_of_condition(where)).rows
    with LetterDatabase(candidates) as database:
        matching = database.matching(where)
    found = [each for each in candidates.column("id").to_pylist() if each in matching]
    omitted = 0 if newest is None else max(0, len(found) - newest)
    kept = LetterFilter(epoch, operator, frozenset(found[omitted:]))
    return Letters(dead_letters(backend, kept).rows, omitted)


def _refuse(value: str | None, flag: str) -> None:
    if value is not None:
        raise ConfigError(
            f"{flag} applies to a state directory, not to a service",
            hint="Name the directory with --state-dir.",
        )


def _ids(named: list[str] | None, corrected: Collection[str]) -> list[str] | None:
    """Return the ids to replay; None: all."""
    if not named and not corrected:
        return None
    return [*dict.fromkeys([*(named or ()), *corrected])]


def _sent(letter: str, correction: Correction) -> CorrectedLetter:
    raw = correction.raw
    return CorrectedLetter(
        id=letter,
        raw_base64=None if raw is None else base64.b64encode(raw).decode(),
        source=correction.source,
        position=correction.position,
    )


def _corrected(file: Path | None) -> dict[str, Correction]:
    """Return the records in a file by id."""
    if file is None:
        return {}
    from resurgence.state.inspection.dead_letters import Correction

    found: dict[str, Correction] = {}
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                letter = json.loads(line)
                correction = Correction(_raw(letter), letter.get("source"), letter.get("position"))
                found[str(letter["id"])] = correction
            except (ValueError, TypeError, KeyError) as error:
                raise UserError(
                    f"{file}, line {number}: not a dead letter with 'id' and 'raw'",
                    hint="Write lines as `resurgence dead-letters list --json` does, and change"
                    " 'raw'.",
                ) from error
    return found


def _raw(letter: Mapping[str, Any]) -> bytes | None:
    """Return the bytes of a record; None if it has no value. `raw_base64` is of a record that is
    not text, as long as `raw` was not changed.
    """
    text = letter["raw"]
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(text)
    if letter.get("raw_base64"):
        raw = base64.b64decode(letter["raw_base64"])
        if raw.decode(errors="backslashreplace") == text:
            return raw
    return text.encode()


# -------------------------------------------------------------------- output


def _print(letters: DeadLetters, as_json: bool) -> int:
    if as_json:
        for each in letters.dead_letters:
            absent = {name for name in _ONLY_OF_SOME if getattr(each, name) is None}
            print(each.model_dump_json(exclude=absent))
    elif not letters.dead_letters:
        print("there are no dead letters")
    else:
        header = ("id", "epoch", "operator", "position", "error", "replayed")
        for line in table_lines(header, [*map(_cells, letters.dead_letters)]):
            print(line)
    if letters.omitted:
        print(f"{count_text(letters.omitted, 'older dead letter')} omitted", file=sys.stderr)
    return 0


def _cells(letter: DeadLetter) -> tuple[object, ...]:
    error = letter.error
    short = error if len(error) <= _LONGEST_ERROR else f"{error[: _LONGEST_ERROR - 3]}..."
    return letter.id, str(letter.epoch), letter.operator, letter.position, short, letter.replayed


def _show(letters: DeadLetters) -> int:
    (letter,) = letters.dead_letters
    for field in ("id", "epoch", "operator", "source", "position", "error", "at", "replayed"):
        print(f"{field:<10} {getattr(letter, field)}")
    if letter.key is not None:
        print(f"key        {letter.key}")
    for each in letter.headers or ():
        print(f"header     {each.key}: {'null' if each.value is None else each.value}")
    if letter.record_timestamp is not None:
        print(f"timestamp  {letter.record_timestamp}")
    print("raw")
    encoded = letter.raw_base64
    raw = (letter.raw or "").encode() if encoded is None else base64.b64decode(encoded)
    for line in _raw_lines(raw):
        print(f"  {line}")
    return 0


def _raw_lines(raw: bytes) -> Iterator[str]:
    """Yield a record as text, or in hexadecimal if it is not text."""
    try:
        yield from raw.decode().split("\n")
    except UnicodeDecodeError:
        for start in range(0, len(raw), 32):
            yield raw[start : start + 32].hex(" ")


def _print_replayed(replayed: Replayed, as_json: bool) -> int:
    if as_json:
        print(replayed.model_dump_json())
        return 0
    for line in _replayed_lines(replayed):
        print(line)
    for warning in replayed.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return 0


def _replayed_lines(replayed: Replayed) -> Iterable[str]:
    if replayed.skipped:
        yield f"{count_text(replayed.skipped, 'dead letter')} skipped: replayed before"
    if not replayed.rows:
        yield "nothing to replay"
    else:
        yield f"{count_text(replayed.rows, 'dead letter')} to be read with later epochs"
