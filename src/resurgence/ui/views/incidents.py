"""Incidents as timelines of their phases; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from resurgence.ui.views.jobs import since
from resurgence.ui.views.lists import pager
from resurgence.ui.views.markup import NOTHING, Markup, html
from resurgence.ui.views.numbers import count, span

PAGE = 20
_PHASES = {
    "detect": ("Detect", 0),
    "tear_down": ("Decide", 1),
    "backoff": ("Back off", 6),
    "plan": ("Plan", 2),
    "schedule": ("Schedule", 3),
    "restore": ("Restore", 4),
    "resume": ("First commit", 5),
}
_KINDS = {
    "worker_exited": "Worker exited",
    "worker_timedout": "Worker silent",
    "task_failed": "Task failed",
    "progress_stalled": "No progress",
    "start_failed": "Start failed",
    "control_failed": "Controller failed",
    "controller_lost": "Controller lost",
}


@dataclass(frozen=True)
class Phase:
    """A phase of a recovery."""

    name: str
    seconds: float
    colour: int


@dataclass(frozen=True)
class IncidentView:
    """An incident as it is shown."""

    job: str
    kind: str
    reason: str
    hint: str
    domain: str
    operator: str | None
    detected_at: str
    resumed_at: str | None
    is_open: bool
    attempts: int
    restored_epoch: int | None
    replayed_rows: int
    generations: tuple[int, ...]
    fallbacks: tuple[str, ...]
    phases: tuple[Phase, ...]

    @property
    def duration(self) -> float | None:
        """Seconds until the first commit; None if there was none."""
        if self.resumed_at is None:
            return None
        span = datetime.fromisoformat(self.resumed_at) - datetime.fromisoformat(self.detected_at)
        return span / timedelta(seconds=1)


def incident_view(
    facts: Mapping[str, object], *, job: str = "", is_open: bool = False
) -> IncidentView:
    """Return an incident from its facts; older records lack some of them."""
    spent = facts.get("phases")
    found = spent if isinstance(spent, dict) else {}
    resumed = facts.get("resumed_at")
    generations = facts.get("generations")
    return IncidentView(
        job=str(facts.get("job") or job),
        kind=_KINDS.get(str(facts.get("kind")), str(facts.get("kind")).replace("_", " ")),
        reason=str(facts.get("reason") or ""),
        hint=str(facts.get("hint") or ""),
        domain=str(facts.get("domain") or ""),
        operator=str(facts["operator_id"]) if facts.get("operator_id") else None,
        detected_at=str(facts["detected_at"]),
        resumed_at=str(resumed) if resumed else None,
        is_open=is_open,
        attempts=_whole(facts.get("attempts")) or 1,
        restored_epoch=_whole(facts.get("restored_epoch")),
        replayed_rows=_whole(facts.get("replayed_rows")) or 0,
        generations=tuple(generations) if isinstance(generations, list) else (),
        fallbacks=tuple(_fallbacks(facts.get("fallbacks"))),
        phases=tuple(
            Phase(name, float(found[key]), colour)
            for key, (name, colour) in _PHASES.items()
            if key in found
        ),
    )


def _fallbacks(value: object) -> list[str]:
    if not isinstance(value, list):
        return []
    return [
        f"epoch {each.get('epoch')}: {'; '.join(map(str, each.get('reasons') or ()))}"
        for each in value
        if isinstance(each, dict)
    ]


def incidents_panel(incidents: Sequence[IncidentView], *, with_job: bool) -> Markup:
    """Return a list of incidents, each with its timeline."""
    if not incidents:
        return html('<div class="panel"><p class="empty">No incidents.</p></div>')
    return html(
        '<section class="panel" aria-label="Incidents">{}</section>',
        html.join(_incident(each, with_job) for each in incidents),
    )


def incidents_page(views: Sequence[IncidentView], page: int, *, with_job: bool) -> Markup:
    """Return one page of incidents."""
    part = views[page * PAGE : (page + 1) * PAGE]
    return html("{}{}", incidents_panel(part, with_job=with_job), pager(page, PAGE, len(views)))


def _incident(view: IncidentView, with_job: bool) -> Markup:
    outcome = html('<span class="state bad"><i></i>not recovered</span>')
    if view.is_open:
        outcome = html('<span class="state warn"><i></i>recovering</span>')
    elif view.duration is not None:
        outcome = html(
            '<span class="state good"><i></i>recovered in {}</span>', span(view.duration)
        )
    facts = [
        html("restored epoch <b>{}</b>", view.restored_epoch)
        if view.restored_epoch is not None
        else NOTHING,
        html("<b>{}</b> rows replayed", count(view.replayed_rows))
        if view.restored_epoch is not None
        else NOTHING,
        html("<b>{}</b> attempts", view.attempts) if view.attempts > 1 else NOTHING,
        html("generations <b>{}</b>", " → ".join(map(str, _chain(view))))
        if view.generations
        else NOTHING,
        html("operator <b>{}</b>", view.operator) if view.operator else NOTHING,
        html("{} error", view.domain) if view.domain else NOTHING,
    ]
    return html(
        '<article class="incident" data-key="{of} {at}" data-incident="{at}"><div class="top">{job}<h3>{kind}</h3>{outcome}'
        '<span class="dim">{since}</span></div><div class="cause">{reason}</div>{hint}{timeline}'
        '<div class="note">{facts}</div>{fallbacks}</article>',
        of=view.job,
        at=view.detected_at,
        job=html('<a href="/jobs/{0}/incidents"><b>{0}</b></a>', view.job) if with_job else "",
        kind=view.kind,
        outcome=outcome,
        since=since(view.detected_at, ago=True),
        reason=view.reason,
        hint=html('<div class="hint">{}</div>', view.hint) if view.hint else "",
        timeline=_timeline(view.phases),
        facts=html.join((each for each in facts if each), " · "),
        fallbacks=html.join(
            html('<div class="note warn">fell back from {}</div>', each) for each in view.fallbacks
        ),
    )


def _chain(view: IncidentView) -> list[int]:
    """Return the generations that failed, and the one that recovered."""
    failed = [*view.generations]
    return [*failed, failed[-1] + 1] if view.resumed_at else failed


def _timeline(phases: Sequence[Phase]) -> Markup:
    if not phases:
        return NOTHING
    track = html.join(
        html(
            '<span class="p{}" style="flex-grow:{}" title="{}: {}"></span>',
            each.colour,
            f"{max(each.seconds, 0.001):.3f}",
            each.name,
            span(each.seconds),
        )
        for each in phases
    )
    listed = html.join(
        html('<li><i class="p{}"></i>{} <b>{}</b></li>', each.colour, each.name, span(each.seconds))
        for each in phases
    )
    return html(
        '<div class="timeline"><div class="track" aria-hidden="true">{}</div><ol>{}</ol></div>',
        track,
        listed,
    )


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None
