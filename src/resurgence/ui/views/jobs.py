"""The list of jobs: its rows, its filter, and its table; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from resurgence.control.controller import JobView
from resurgence.control.jobs.job_record import Wanted
from resurgence.control.jobs.transitions import TERMINAL, StateName
from resurgence.ui.views.lists import chips, pager
from resurgence.ui.views.markup import NOTHING, Markup, html
from resurgence.ui.views.numbers import UNKNOWN, rate, short_count, span

PAGE = 50
_TONES = {
    StateName.RUNNING: "good",
    StateName.FAILED: "bad",
    StateName.FAILING: "bad",
    StateName.RECOVERING: "warn",
    StateName.FINISHED: "done",
    StateName.STOPPED: "off",
}


@dataclass(frozen=True)
class JobRow:
    """A job in the list."""

    name: str
    state: StateName
    since: str | None
    """ISO text."""
    wants_running: bool
    parallelism: int
    rows_per_second: float | None
    lag_rows: float | None
    lag_seconds: float | None
    watermark_delay: float | None
    checkpoint_epoch: int | None
    checkpoint_at: str | None
    incidents: int
    """Of the last day."""
    in_incident: bool
    reason: str

    @property
    def is_active(self) -> bool:
        return self.state not in TERMINAL


def tone(state: StateName) -> str:
    """Return the colour of a state: good, warn, bad, done, off, or busy while it changes."""
    return _TONES.get(state, "busy")


def job_row(view: JobView, rows_per_second: float | None, incidents: int) -> JobRow:
    """Return a job as the list shows it."""
    status, progress = view.record.status, view.progress
    lag = _facts(progress.get("lag"))
    last = _facts(progress.get("last_checkpoint"))
    epoch = _number(progress.get("epoch"))
    delay = _number(progress.get("watermark_lag_seconds"))
    is_running = status.state is StateName.RUNNING
    return JobRow(
        name=view.record.name,
        state=status.state,
        since=status.changed_at.isoformat() if status.changed_at else None,
        wants_running=view.record.desired.wanted is Wanted.RUNNING,
        parallelism=status.parallelism or view.record.desired.parallelism,
        rows_per_second=rows_per_second if is_running else None,
        lag_rows=_number(lag.get("rows")) if is_running else None,
        lag_seconds=_number(lag.get("seconds")) if is_running else None,
        # Whole seconds: the delay is shown every two of them.
        watermark_delay=round(delay) if is_running and delay is not None else None,
        checkpoint_epoch=int(epoch) if epoch else None,
        checkpoint_at=str(last["at"]) if last.get("at") else None,
        incidents=incidents,
        in_incident=progress.get("incident") is not None,
        reason=status.cause,
    )


def _facts(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _number(value: JsonValue) -> float | None:
    return value if isinstance(value, int | float) else None


GROUPS = {
    "all": "All",
    "running": "Running",
    "changing": "Changing",
    "failed": "Failed",
    "ended": "Stopped or finished",
}


def group(row: JobRow) -> str:
    """Return the group that a job is counted in."""
    if row.state is StateName.RUNNING:
        return "running"
    if row.state is StateName.FAILED:
        return "failed"
    return "changing" if row.is_active else "ended"


def group_counts(rows: Sequence[JobRow]) -> dict[str, int]:
    """Return how many jobs each group has."""
    counts = dict.fromkeys(GROUPS, 0)
    for each in rows:
        counts["all"] += 1
        counts[group(each)] += 1
    return counts


def matching(rows: Sequence[JobRow], text: str, in_group: str) -> list[JobRow]:
    """Return the jobs of a group whose name or reason contains all words of a text."""
    words = text.lower().split()
    return [
        each
        for each in rows
        if in_group in ("all", group(each))
        and all(word in f"{each.name} {each.state} {each.reason}".lower() for word in words)
    ]


@dataclass(frozen=True)
class JobsKey:
    """Which part of the list a page shows."""

    text: str = ""
    group: str = "all"
    page: int = 0
    may_write: bool = False


@dataclass(frozen=True)
class JobsShown:
    """A part of the list: the buttons of its groups, and its table."""

    groups: Markup
    table: Markup


def jobs_shown(rows: Sequence[JobRow], key: JobsKey) -> JobsShown:
    """Return a part of the list."""
    found = matching(rows, key.text, key.group)
    page = min(key.page, max(0, len(found) - 1) // PAGE)
    part = found[page * PAGE : (page + 1) * PAGE]
    table = jobs_table(part, may_write=key.may_write)
    if not rows:
        table = html('<p class="empty">There are no jobs yet.</p>')
    return JobsShown(
        chips(GROUPS, group_counts(rows), key.group),
        html('<div class="panel">{}{}</div>', table, pager(page, PAGE, len(found))),
    )


def state_mark(state: StateName) -> Markup:
    """Return a state as a dot of its colour and its name."""
    return html('<span class="state {}"><i></i>{}</span>', tone(state), _spaced(state))


def _spaced(state: StateName) -> str:
    return "Stopping" if state is StateName.CHECKPOINT_STOPPING else str(state)


def since(at: str | None, *, ago: bool = False) -> Markup:
    """Return the time since an instant, which the browser counts on."""
    if at is None:
        return html('<span class="dim">{}</span>', UNKNOWN)
    if ago:
        return html('<time data-since="{0}" data-ago datetime="{0}"></time>', at)
    return html('<time data-since="{0}" datetime="{0}"></time>', at)


def jobs_table(rows: Sequence[JobRow], *, may_write: bool) -> Markup:
    """Return the table of one page of jobs."""
    if not rows:
        return html('<p class="empty">No job matches.</p>')
    head = "".join(
        f'<th scope="col"{kind}>{name}</th>'
        for name, kind in (
            ("Job", ""),
            ("State", ""),
            ("Since", ""),
            ("Input", ' class="num"'),
            ("Lag", ' class="num"'),
            ("Watermark delay", ' class="num"'),
            ("Checkpoint", ' class="num"'),
            ("Incidents, 24 h", ' class="num"'),
            ('<span class="hidden">Actions</span>', ""),
        )
    )
    return html(
        '<div class="scroll"><table class="grid jobs"><thead><tr>{}</tr></thead><tbody>{}</tbody>'
        "</table></div>",
        html.trusted(head),
        html.join(_line(each, may_write) for each in rows),
    )


def _line(row: JobRow, may_write: bool) -> Markup:
    button = html(
        '<button class="quiet" data-action="menu" data-job="{0}" aria-label="Actions of {0}">'
        "Actions</button>",
        row.name,
    )
    why = NOTHING
    if row.state is StateName.FAILED and row.reason:
        why = html('<div class="why">{}</div>', row.reason)
    return html(
        '<tr data-key="{name}"><th scope="row"><a href="/jobs/{name}">{name}</a>{why}</th>'
        '<td data-label="State">{state}</td><td data-label="Since">{since}</td>'
        '<td class="num" data-label="Input">{rate}</td><td class="num" data-label="Lag">{lag}</td>'
        '<td class="num" data-label="Watermark delay">{delay}</td>'
        '<td class="num" data-label="Checkpoint">{checkpoint}</td>'
        '<td class="num" data-label="Incidents, 24 h">{incidents}</td>'
        '<td class="end">{button}</td></tr>',
        name=row.name,
        why=why,
        state=state_mark(row.state),
        since=since(row.since),
        rate=rate(row.rows_per_second),
        lag=_lag(row),
        delay=span(row.watermark_delay),
        checkpoint=_checkpoint(row),
        incidents=_incidents(row),
        button=button if may_write else "",
    )


def _lag(row: JobRow) -> str:
    if row.lag_rows is None:
        return UNKNOWN
    rows = f"{short_count(row.lag_rows)} rows"
    return rows if row.lag_seconds is None else f"{rows} · {span(row.lag_seconds)}"


def _checkpoint(row: JobRow) -> Markup:
    if row.checkpoint_epoch is None:
        return html("{}", UNKNOWN)
    return html("{} · {}", row.checkpoint_epoch, since(row.checkpoint_at))


def _incidents(row: JobRow) -> Markup:
    if row.in_incident:
        return html('<a class="bad" href="/jobs/{}/incidents">open</a>', row.name)
    if not row.incidents:
        return html('<span class="dim">0</span>')
    return html('<a class="warn" href="/jobs/{}/incidents">{}</a>', row.name, row.incidents)
