"""Events as a table; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from resurgence.control.store.metadata import StoredEvent
from resurgence.ui.views.markup import NOTHING, Markup, html

PAGE = 100
KINDS = {
    "": "All",
    "checkpoint": "Checkpoints",
    "committed": "Commits",
    "state": "States",
    "failure": "Failures",
    "incident": "Incidents",
}
_BAD = {
    "failure",
    "incident",
    "checkpoint_damaged",
    "executor_lost",
    "fallback",
    "rollback_refused",
}
_SHOWN_APART = {"event", "at"}


@dataclass(frozen=True)
class EventsKey:
    """Which events a page shows."""

    job: str
    """Empty: of all jobs."""
    before: int = 0
    """Those with lower ids; 0: the newest."""
    kind: str = ""
    text: str = ""


def events_panel(found: Sequence[tuple[str, StoredEvent]], key: EventsKey) -> Markup:
    """Return a page of events. One more than the page holds shows that there are older ones."""
    part = found[:PAGE]
    older, newer = NOTHING, NOTHING
    if len(found) > PAGE:
        older = html(
            '<button class="plain" data-action="older" data-value="{}">Older</button>',
            part[-1][1].id,
        )
    if key.before:
        newer = html('<button class="plain" data-action="newer">Newer</button>')
    return html(
        '<div class="panel">{}<div class="pages"><span>{}</span>{}{}</div></div>',
        events_table(part, with_job=not key.job),
        "older events" if key.before else "following",
        newer,
        older,
    )


def events_table(events: Sequence[tuple[str, StoredEvent]], *, with_job: bool) -> Markup:
    """Return a table of events, the newest first."""
    if not events:
        return html('<p class="empty">No events.</p>')
    return html(
        '<div class="scroll"><table class="grid"><thead><tr><th scope="col">At (UTC)</th>{}'
        '<th scope="col">Event</th><th scope="col">Facts</th></tr></thead><tbody>{}</tbody></table></div>',
        html('<th scope="col">Job</th>') if with_job else "",
        html.join(_line(job, each, with_job) for job, each in events),
    )


def _line(job: str, stored: StoredEvent, with_job: bool) -> Markup:
    event = stored.event
    kind = str(event["event"])
    return html(
        '<tr data-key="{}"><td class="mono" style="white-space:nowrap">{}</td>{}<td><span class="{}">{}</span></td>'
        '<td class="wrap">{}</td></tr>',
        stored.id,
        str(event["at"])[:23].replace("T", " "),
        html('<td><a href="/jobs/{0}/events">{0}</a></td>', job) if with_job else "",
        "bad" if kind in _BAD else "",
        kind,
        facts_text(event),
    )


def facts_text(event: Mapping[str, JsonValue]) -> str:
    """Return the facts of an event in one line."""
    parts = []
    for key, value in event.items():
        if key in _SHOWN_APART or value in (None, "", [], {}):
            continue
        if isinstance(value, dict | list):
            text = json.dumps(value, ensure_ascii=False)
            text = text if len(text) <= 200 else f"{text[:199]}…"
        elif (
            isinstance(value, int)
            and not isinstance(value, bool)
            and key not in ("pid", "watermark")
        ):
            text = f"{value:,}"
        else:
            text = str(value)
        parts.append(f"{key.replace('_', ' ')}: {text}")
    if event.get("event") == "state":
        return f"{event.get('from')} → {event.get('to')}: {event.get('reason')}"
    return " · ".join(parts)
