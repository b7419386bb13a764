"""The overview of a job: header, numbers, what a failure would cost; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from resurgence.control.jobs.job_record import JobRecord
from resurgence.control.jobs.transitions import TERMINAL, StateName
from resurgence.ui.views.frame import error_alert
from resurgence.ui.views.jobs import JobRow, since, state_mark
from resurgence.ui.views.markup import NOTHING, Markup, html
from resurgence.ui.views.numbers import UNKNOWN, byte_size, rate, short_count, span

TABS = {
    "": "Overview",
    "incidents": "Incidents",
    "checkpoints": "Checkpoints",
    "state": "State",
    "dead-letters": "Dead letters",
    "ledger": "Ledger",
    "events": "Events",
    "logs": "Logs",
    "sql": "SQL",
}


def job_head(record: JobRecord, tab: str, actions: Sequence[str]) -> Markup:
    """Return the title of a job's pages with its state, its actions and the tabs."""
    name, status = record.name, record.status
    tabs = html.join(
        html(
            '<a href="/jobs/{}{}"{}>{}</a>',
            name,
            f"/{path}" if path else "",
            html.trusted(' aria-current="page"') if path == tab else NOTHING,
            text,
        )
        for path, text in TABS.items()
    )
    return html(
        '<div class="crumb"><a href="/">Jobs</a></div><div class="head"><h1>{}</h1>{}'
        '<span class="dim">{}{}</span>{}</div><nav class="tabs" aria-label="Job">{}</nav>',
        name,
        state_mark(status.state),
        html("for {}", since(status.changed_at.isoformat())) if status.changed_at else "",
        html(" · parallelism {}", status.parallelism or record.desired.parallelism),
        job_buttons(actions),
        tabs,
    )


def actions_on(record: JobRecord, *, only_stop: bool) -> list[str]:
    """Return the actions that the state of a job allows."""
    is_active = record.status.state not in TERMINAL
    if only_stop:
        return ["stop"] if is_active else []
    return ["stop" if is_active else "start", "restart", "rescale", "delete"]


def job_buttons(actions: Sequence[str]) -> Markup:
    """Return the buttons of actions."""
    return html(
        '<div class="tools actions">{}</div>',
        html.join(
            html('<button class="plain" data-action="{}">{}</button>', each, each.capitalize())
            for each in actions
        ),
    )


def diagnosis(record: JobRecord) -> Markup:
    """Return why a job failed: the first fault, how often, what was tried, what to do."""
    failure = record.status.failure
    if record.status.state is not StateName.FAILED or not failure:
        return NOTHING
    tried = failure.get("tried")
    rows: list[tuple[str, object]] = [
        ("First fault", failure.get("first_fault")),
        ("Times", failure.get("times")),
        ("Operator", failure.get("operator_id")),
        ("Epoch", failure.get("epoch") or None),
        ("Position", failure.get("position")),
        ("Tried", ", ".join(map(str, tried)) if isinstance(tried, list) else None),
    ]
    pairs = html.join(
        html("<dt>{}</dt><dd>{}</dd>", name, each) for name, each in rows if each not in (None, "")
    )
    trace = failure.get("traceback")
    shown = NOTHING
    if trace:
        shown = html(
            '<details><summary>Traceback</summary><pre class="raw">{}</pre></details>', trace
        )
    return html(
        '<div class="alert" role="alert"><b>{}</b><div class="hint">{}</div>'
        '<dl class="pairs" style="margin-top:.6rem">{}</dl>{}</div>',
        failure.get("reason") or record.status.cause,
        failure.get("what_to_do"),
        pairs,
        shown,
    )


def job_numbers(row: JobRow, progress: Mapping[str, JsonValue]) -> Markup:
    """Return the numbers of a job, and what it would cost if its worker died now."""
    dies = _facts(progress.get("if_it_dies_now"))
    last = _facts(progress.get("last_checkpoint"))
    lag = f"{short_count(row.lag_rows)}" if row.lag_rows is not None else UNKNOWN
    late = _number(progress.get("late_rows"))
    bad = (_number(progress.get("bad_rows")) or 0) + (_number(progress.get("dead_rows")) or 0)
    recoveries = _number(progress.get("recoveries"))
    restarts = _number(progress.get("restarts_left"))
    facts = [
        _fact(
            "Input",
            rate(row.rows_per_second),
            f"{short_count(_number(progress.get('rows_in')))} rows read",
        ),
        _fact("Output", short_count(_number(progress.get("rows_out"))), "rows staged"),
        _fact(
            "Lag",
            lag,
            f"{span(row.lag_seconds)} behind" if row.lag_seconds is not None else "rows unread",
        ),
        _fact(
            "Watermark delay",
            "end of input" if progress.get("input_has_ended") else span(row.watermark_delay),
            "behind the clock",
        ),
        _fact(
            "Checkpoint",
            row.checkpoint_epoch if row.checkpoint_epoch is not None else UNKNOWN,
            html("sealed {}", since(row.checkpoint_at, ago=True)) if row.checkpoint_at else "",
        ),
        _fact(
            "State",
            byte_size(_number(last.get("state_bytes"))),
            f"{byte_size(_number(last.get('bytes')))} last epoch",
        ),
        _fact("Late rows", short_count(late), f"{short_count(bad)} bad or dead"),
        _fact("Recoveries", short_count(recoveries), f"{short_count(restarts)} restarts left"),
        _fact(
            "If it died now",
            span(_number(dies.get("expected_seconds"))) if dies else UNKNOWN,
            f"{short_count(_number(dies.get('rows_to_replay')))} rows to replay"
            if dies
            else "not running",
        ),
    ]
    return html('<div class="facts">{}</div>', html.join(facts))


def _fact(name: str, value: object, more: object) -> Markup:
    return html(
        '<div class="fact"><div class="name">{}</div><div class="value">{}</div>'
        '<div class="more">{}</div></div>',
        name,
        value,
        more,
    )


def open_incident(progress: Mapping[str, JsonValue], name: str) -> Markup:
    """Return a note about the incident that is open, if one is."""
    incident = _facts(progress.get("incident"))
    if not incident:
        return NOTHING
    return html(
        '<div class="alert warn" role="status">Recovering: {} '
        '<a href="/jobs/{}/incidents">Follow the incident</a></div>',
        incident.get("reason"),
        name,
    )


def no_job(message: str, hint: str) -> Markup:
    return error_alert(message, hint)


def _facts(value: JsonValue | None) -> Mapping[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _number(value: JsonValue | None) -> float | None:
    return value if isinstance(value, int | float) else None
