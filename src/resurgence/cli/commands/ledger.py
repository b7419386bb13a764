"""`resurgence ledger`: the rows in and out of each epoch, and whether the counts balance."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from resurgence.cli.output.plain_table import count_text, table_lines
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
from resurgence.ids import OperatorId
from resurgence.state.inspection.checkpoints import kept_checkpoints
from resurgence.state.inspection.ledger import (
    Check,
    CheckKind,
    Ledger,
    Verdict,
    filtered_rows,
    ledger_of,
)
from resurgence.state.records import EpochCounts

_COUNTS = {
    "in": "rows_in",
    "bad": "bad_rows",
    "dead": "dead_rows",
    "skipped": "skipped_rows",
    "late": "late_rows",
    "kept": "kept_rows",
    "partly late": "partly_late_rows",
    "filtered": "filtered",
    "out": "rows_out",
}
"""The columns, and the counts that they show."""


def ledger_command(
    state_dir: StateDir = DEFAULT_STATE_DIR,
    name: Name = None,
    last: Annotated[
        int | None,
        typer.Option(metavar="N", parser=whole_number(1), help="Only the last N epochs."),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show rows in, bad, dead, late, kept and out of each epoch, and check that they balance."""
    run_and_exit(debug, lambda: show_ledger(state_dir, name, last, as_json))


def show_ledger(state_dir: str, name: str | None, last: int | None, as_json: bool) -> int:
    """Print the ledger; return 1 if it does not balance."""
    ledger = ledger_of(kept_checkpoints(open_job(state_dir, name)), last)
    if as_json:
        print(json.dumps(_document(ledger), indent=2))
    else:
        for line in _lines(ledger):
            print(line)
    return 0 if ledger.balances else 1


def _document(ledger: Ledger) -> dict[str, Any]:
    totals = ledger.totals
    return {
        "epochs": [
            {
                "epoch": line.epoch,
                "status": line.status,
                **line.counts.model_dump(mode="json"),
                "filtered": dict(line.filtered),
                "state_rows": line.state_rows,
                "state_bytes": line.state_bytes,
            }
            for line in ledger.lines
        ],
        "totals": None
        if totals is None
        else {"since": totals.since, **totals.counts.model_dump(mode="json")},
        "checks": [
            {
                "check": each.kind.name.lower(),
                "epoch": each.epoch,
                "verdict": str(each.verdict),
                "detail": each.detail,
            }
            for each in ledger.checks
        ],
        "balances": ledger.balances,
    }


def _lines(ledger: Ledger) -> Iterator[str]:
    if not ledger.lines and not ledger.checks:
        yield "there are no checkpoints yet"
        return
    columns = list(_columns([line.counts for line in ledger.lines]))
    header = ["epoch", *(title for title, _, _ in columns), "state rows", "state bytes", "status"]
    rows: list[Sequence[object]] = [
        [
            str(line.epoch),
            *(_figures(line.counts, line.filtered)[each].get(at) for _, each, at in columns),
            line.state_rows,
            line.state_bytes,
            line.status,
        ]
        for line in ledger.lines
    ]
    if ledger.totals is not None:
        totals = ledger.totals
        figures = _figures(totals.counts, filtered_rows(totals.counts))
        since = f"total since {totals.since}"
        rows.append([since, *(figures[each].get(at) for _, each, at in columns), None, None, ""])
    yield from table_lines(header, rows)
    yield ""
    for kind in CheckKind:
        yield from _check_lines(kind, [each for each in ledger.checks if each.kind is kind])


def _columns(counts: Iterable[EpochCounts]) -> Iterator[tuple[str, str, OperatorId]]:
    """Yield (title, count, operator) per column. Titles name the operator if there are several."""
    listed = list(counts)
    for title, field in _COUNTS.items():
        stored = "kept_rows" if field == "filtered" else field
        operators = list(dict.fromkeys(at for each in listed for at in getattr(each, stored)))
        for operator in operators:
            yield title if len(operators) == 1 else f"{title} {operator}", field, operator


def _figures(
    counts: EpochCounts, filtered: Mapping[OperatorId, int]
) -> dict[str, Mapping[OperatorId, int]]:
    return {
        **{name: getattr(counts, name) for name in EpochCounts.model_fields},
        "filtered": filtered,
    }


def _check_lines(kind: CheckKind, checks: Sequence[Check]) -> Iterator[str]:
    """Yield one line for the passed checks, one per mismatch, and one for the unknown."""
    passed = [each for each in checks if each.verdict is Verdict.OK]
    unknown = [each for each in checks if each.verdict is Verdict.UNKNOWN]
    if passed:
        epochs = len({each.epoch for each in passed})
        yield f"ok        {kind}: {count_text(epochs, 'epoch')}; epoch {passed[-1].epoch}: {passed[-1].detail}"
    for each in checks:
        if each.verdict is Verdict.MISMATCH:
            yield f"MISMATCH  {kind}: epoch {each.epoch}: {each.detail}"
    if unknown:
        epochs = len({each.epoch for each in unknown})
        yield f"n/a       {kind}: {count_text(epochs, 'epoch')}; epoch {unknown[0].epoch}: {unknown[0].detail}"
