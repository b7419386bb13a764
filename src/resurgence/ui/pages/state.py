"""The state of a job: the tables of any retained checkpoint, SQL over them, and what changed."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request
from nicegui import ui

from resurgence.errors import ResurgenceError
from resurgence.ids import Epoch
from resurgence.state.inspection.checkpoints import CheckpointView, of_each_epoch
from resurgence.state.inspection.query_process import confined
from resurgence.state.inspection.state_database import StateTable, state_tables
from resurgence.state.inspection.state_queries import difference, query_state
from resurgence.ui.dialogs import button
from resurgence.ui.elements.editor_shade import EditorShade
from resurgence.ui.elements.live_html import LiveHtml
from resurgence.ui.job_frame import JobPage, job_framed
from resurgence.ui.views.frame import error_alert
from resurgence.ui.views.markup import Markup, html
from resurgence.ui.views.numbers import byte_size, count
from resurgence.ui.views.rows import arrow_table

MOST_ROWS = 200


def add() -> None:
    @ui.page("/jobs/{name}/state")
    async def state_page(request: Request, name: str) -> None:
        async with job_framed(request, name, "state") as job:
            if job is None:
                return
            views = [*of_each_epoch(await job.page.console.feeds.checkpoints.get(name)).values()]
            readable = {each.epoch: each for each in views if each.operators}
            if not readable:
                LiveHtml(
                    html('<div class="panel"><p class="empty">There is no state yet.</p></div>')
                )
                return
            _State(job, readable).build()


class _State:
    """The page's parts."""

    def __init__(self, job: JobPage, views: Mapping[Epoch, CheckpointView]) -> None:
        self._job = job
        self._views = {int(epoch): each for epoch, each in views.items()}

    def build(self) -> None:
        epochs = {each: f"Epoch {each}" for each in sorted(self._views, reverse=True)}
        newest = next(iter(epochs))
        oldest = [*epochs][-1]
        with ui.element("div").classes("tools"):
            self._epoch = (
                ui.select(epochs, value=newest)
                .props('outlined dense options-dense aria-label="Checkpoint"')
                .on_value_change(self._show_tables)
            )
        self._tables = LiveHtml(self._table_list(), self._choose)
        first = next(iter(self._shown()), None)
        example = f"SELECT * FROM {first.name}" if first else "SELECT * FROM checkpoints"
        with ui.element("section").classes("panel"):
            ui.html(
                "<h2>Query</h2><span class='dim'>read only, DuckDB's dialect, first 200 rows</span>",
                sanitize=False,
                tag="header",
            )
            with ui.element("div").classes("body"):
                self._sql = ui.codemirror(example, language="SQL").style("height:7rem")
                self._sql.props('aria-label="SQL"')
                EditorShade([self._sql])
                with ui.element("div").classes("tools").style("margin-top:.6rem"):
                    button("Run query", self._query, "strong")
            self._rows = LiveHtml(html(""))
        names = [each.name for each in self._shown()]
        if len(epochs) < 2 or not names:
            return
        with ui.element("section").classes("panel"):
            ui.html(
                "<h2>Difference</h2><span class='dim'>between two epochs</span>",
                sanitize=False,
                tag="header",
            )
            with ui.element("div").classes("body tools"):
                look = 'outlined dense options-dense aria-label="{}"'
                self._table = ui.select(names, value=names[0]).props(look.format("Table"))
                self._from = ui.select(epochs, value=oldest).props(look.format("From"))
                self._to = ui.select(epochs, value=newest).props(look.format("To"))
                button("Compare", self._compare)
            self._changes = LiveHtml(html(""))

    def _show_tables(self) -> None:
        self._tables.show(self._table_list())

    def _shown(self) -> tuple[StateTable, ...]:
        return state_tables(self._views[self._epoch.value])

    def _table_list(self) -> Markup:
        return html(
            '<section class="panel"><header><h2>Tables</h2><span class="dim">of epoch {}</span></header>'
            '<div class="scroll"><table class="grid"><thead><tr><th>Table</th><th>Operator</th>'
            '<th>Kind</th><th class="num">Rows</th><th class="num">Size</th></tr></thead>'
            "<tbody>{}</tbody></table></div></section>",
            self._epoch.value,
            html.join(
                html(
                    '<tr><th scope="row"><a href="#" data-action="table" data-table="{0}">{0}</a></th>'
                    '<td>{1}</td><td class="dim">{2}</td><td class="num">{3}</td><td class="num">{4}</td></tr>',
                    each.name,
                    each.operator,
                    each.checkpoint.kind,
                    count(each.rows),
                    byte_size(sum(file.bytes for file in each.checkpoint.files)),
                )
                for each in self._shown()
            ),
        )

    async def _choose(self, facts: dict[str, str]) -> None:
        self._sql.set_value(f"SELECT * FROM {facts['table']}")
        await self._query()

    async def _query(self) -> None:
        controller = self._job.page.console.controller
        try:
            await self._job.page.console.doorkeeper.again(self._job.page.visitor)
            found = await controller.read_state(
                self._job.name,
                confined,
                query_state,
                self._epoch.value,
                self._sql.value,
                MOST_ROWS,
            )
        except ResurgenceError as error:
            self._rows.show(
                html('<div class="body">{}</div>', error_alert(error.message, error.hint))
            )
            return
        more = f"the first {MOST_ROWS} rows" if found.has_more else f"{found.rows.num_rows} rows"
        self._rows.show(
            html(
                '{}<div class="pages"><span>{} of epoch {}</span></div>',
                arrow_table(found.rows),
                more,
                found.epoch,
            )
        )

    async def _compare(self) -> None:
        try:
            await self._job.page.console.doorkeeper.again(self._job.page.visitor)
            found = await self._job.page.console.controller.read_state(
                self._job.name,
                confined,
                difference,
                self._table.value,
                self._from.value,
                self._to.value,
                MOST_ROWS,
            )
        except ResurgenceError as error:
            self._changes.show(
                html('<div class="body">{}</div>', error_alert(error.message, error.hint))
            )
            return
        parts = []
        for title, rows in (
            ("Only in the second", found.added),
            ("Only in the first", found.removed),
        ):
            shown = arrow_table(rows) if rows.num_rows else html('<p class="note body">None.</p>')
            many = (
                f"{rows.num_rows} rows"
                if rows.num_rows < MOST_ROWS
                else f"the first {MOST_ROWS} rows"
            )
            parts.append(
                html(
                    '<header><h3>{}</h3><span class="dim">{}</span></header>{}', title, many, shown
                )
            )
        if found.is_partial:
            parts.append(
                html(
                    '<p class="note body">The table is large: only its first rows were compared.</p>'
                )
            )
        self._changes.show(html.join(parts))
