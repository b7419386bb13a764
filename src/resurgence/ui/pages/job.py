"""The overview of a job: numbers, the dataflow graph, charts."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from resurgence.errors import ResurgenceError
from resurgence.ui.elements.live_html import LiveHtml
from resurgence.ui.job_frame import JobPage, job_framed
from resurgence.ui.views.charts import TITLES
from resurgence.ui.views.frame import error_alert
from resurgence.ui.views.markup import Markup, html


def add() -> None:
    @ui.page("/jobs/{name}")
    async def job_page(request: Request, name: str) -> None:
        async with job_framed(request, name, "") as job:
            if job is None:
                return
            shown = job.page.console.shown
            numbers = LiveHtml(await shown.numbers.get(name))
            graph = LiveHtml(await _graph(job))
            with ui.element("div").classes("charts"):
                known = await shown.charts.get(name)
                charts = {}
                for kind, (title, more) in TITLES.items():
                    with ui.element("section").classes("panel"):
                        ui.html(
                            html("<h2>{}</h2><span class='dim'>{}</span>", title, more),
                            sanitize=False,
                            tag="header",
                        )
                        charts[kind] = (
                            ui.echart({**known[kind]})
                            .classes("chart")
                            .props(f'aria-label="{title}"')
                        )

            async def redraw() -> None:
                nonlocal known
                numbers.show(await shown.numbers.get(name))
                graph.show(await _graph(job))
                fresh = await shown.charts.get(name)
                if fresh is not known:
                    known = fresh
                    for kind, each in charts.items():
                        each.options.update(fresh[kind])
                        each.update()

            job.follow(redraw)


async def _graph(job: JobPage) -> Markup:
    try:
        return await job.page.console.shown.dataflow.get(job.name)
    except ResurgenceError as error:
        return error_alert(f"the graph cannot be drawn: {error.message}", error.hint)
