"""The overview of a job: numbers, the dataflow graph, charts."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from resurgence.errors import ResurgenceError
from resurgence.ui.elements.live_html import LiveHtml
from resurgence.ui.job_frame import JobPage, job_framed
from resurgence.ui.views.charts import TITLES, chart
from resurgence.ui.views.frame import error_alert
from resurgence.ui.views.job import diagnosis, job_numbers, open_incident
from resurgence.ui.views.markup import Markup, html


def add() -> None:
    @ui.page("/jobs/{name}")
    async def job_page(request: Request, name: str) -> None:
        async with job_framed(request, name, "") as job:
            if job is None:
                return
            numbers = LiveHtml(await _numbers(job))
            graph = LiveHtml(await _graph(job))
            with ui.element("div").classes("charts"):
                history = await job.page.console.feeds.history.get(name)
                charts = {}
                for kind, (title, more) in TITLES.items():
                    with ui.element("section").classes("panel"):
                        ui.html(
                            html("<h2>{}</h2><span class='dim'>{}</span>", title, more),
                            sanitize=False,
                            tag="header",
                        )
                        options = chart(kind, history.points)
                        charts[kind] = (
                            ui.echart(options).classes("chart").props(f'aria-label="{title}"')
                        )
            shown = history

            async def redraw() -> None:
                nonlocal shown
                numbers.show(await _numbers(job))
                graph.show(await _graph(job))
                fresh = await job.page.console.feeds.history.get(name)
                if fresh is not shown:
                    shown = fresh
                    for kind, each in charts.items():
                        each.options.update(chart(kind, fresh.points))
                        each.update()

            job.follow(redraw)


async def _numbers(job: JobPage) -> Markup:
    view = await job.now()
    rows = await job.page.console.feeds.jobs.get(None)
    row = next((each for each in rows if each.name == job.name), None)
    if row is None:
        return html("")
    return html(
        "{}{}{}",
        diagnosis(view),
        open_incident(view.progress, job.name),
        job_numbers(row, view.progress),
    )


async def _graph(job: JobPage) -> Markup:
    try:
        return await job.page.console.feeds.dataflow_picture.get(job.name)
    except ResurgenceError as error:
        return error_alert(f"the graph cannot be drawn: {error.message}", error.hint)
