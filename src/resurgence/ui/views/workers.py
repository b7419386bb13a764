"""Workers and executors as tables; pure."""

from __future__ import annotations

from collections.abc import Sequence

from resurgence.control.controller import WorkerView
from resurgence.ui.views.jobs import since
from resurgence.ui.views.markup import NOTHING, Markup, html
from resurgence.ui.views.numbers import UNKNOWN


def workers_panel(workers: Sequence[WorkerView]) -> Markup:
    """Return the worker processes, active or standby, and their executors on a cluster."""
    if not workers:
        return html('<div class="panel"><p class="empty">No worker runs.</p></div>')
    return html(
        '<section class="panel"><header><h2>Worker processes</h2><span class="dim">of this controller'
        '</span></header><div class="scroll"><table class="grid"><thead><tr><th>Worker</th><th>Job</th>'
        '<th>State</th><th>Phase</th><th class="num">Generation</th><th class="num">Process</th>'
        "<th>Started</th><th>Heard</th></tr></thead><tbody>{}</tbody></table></div></section>{}",
        html.join(_line(each) for each in workers),
        html.join(_executors(each) for each in workers if each.executors),
    )


def _line(view: WorkerView) -> Markup:
    job = (
        html('<a href="/jobs/{0}">{0}</a>', view.job)
        if view.job
        else html('<span class="dim">standby</span>')
    )
    return html(
        '<tr><th scope="row" class="mono">{}</th><td>{}</td><td>{}</td><td>{}</td>'
        '<td class="num">{}</td><td class="num">{}</td><td>{}</td><td>{}</td></tr>',
        view.worker.worker,
        job,
        view.state,
        view.phase or UNKNOWN,
        view.worker.generation or UNKNOWN,
        view.worker.pid,
        since(view.started_at.isoformat(timespec="seconds"), ago=True),
        since(view.last_heard_at.isoformat(timespec="seconds"), ago=True)
        if view.last_heard_at
        else UNKNOWN,
    )


def _executors(view: WorkerView) -> Markup:
    return html(
        '<section class="panel"><header><h2>Executors</h2><span class="dim">of {}</span></header>'
        '<div class="scroll"><table class="grid"><thead><tr><th>Executor</th><th>Host</th>'
        '<th class="num">Cores</th><th>Status</th></tr></thead><tbody>{}</tbody></table></div></section>',
        view.job or view.worker.worker,
        html.join(
            html(
                '<tr><th scope="row">{}</th><td>{}</td><td class="num">{}</td><td class="wrap">{}</td></tr>',
                each.id,
                each.host,
                each.cores,
                html('<span class="bad">lost: {}</span>', each.reason) if each.reason else "active",
            )
            for each in view.executors
        ),
    )


def elsewhere_note(others: int) -> Markup:
    """Return a note about the workers of other controllers."""
    if not others:
        return NOTHING
    return html(
        '<p class="note">{} more controllers share the jobs of this service. GET /v1/workers lists the '
        "workers of all of them.</p>",
        others,
    )
