"""The SQL editor: a new job, or the pipeline of an existing one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fastapi import Request
from nicegui import ui

from resurgence.api.access.literal_secrets import (
    require_no_literal_secrets,
    require_no_literal_secrets_in,
)
from resurgence.connectors.registry import CONNECTORS
from resurgence.control.background import in_thread
from resurgence.control.controller import NewJob
from resurgence.control.jobs.job_record import PipelineRecord
from resurgence.engine.preview import PreviewedTable
from resurgence.errors import ResurgenceError, SqlError
from resurgence.graph.model import Graph
from resurgence.ids import job_name
from resurgence.secrets import shown_value
from resurgence.sql.catalog.declared_names import declared_names
from resurgence.sql.functions.aggregates import AGGREGATES
from resurgence.sql.functions.registry import WINDOWS
from resurgence.sql.syntax.masking import masked_sql
from resurgence.ui.dialogs import button, ending, opened_dialog
from resurgence.ui.elements.editor_shade import EditorShade
from resurgence.ui.elements.live_html import LiveHtml
from resurgence.ui.elements.sql_completion import SqlCompletion
from resurgence.ui.frame import Page, framed, show_error
from resurgence.ui.job_frame import JobPage, job_framed
from resurgence.ui.views.dataflow import Dataflow, dataflow_panel
from resurgence.ui.views.editor import (
    EXAMPLE,
    fates_panel,
    marked_range,
    no_problem,
    preview_panel,
    problem,
    settings_of,
    settings_text,
)
from resurgence.ui.views.markup import html

_PAUSE = 0.4
"""How long the user must pause before the text is compiled."""
_COMPILING = asyncio.Semaphore(2)
_WORDS = sorted({*AGGREGATES, *WINDOWS})


def add() -> None:
    @ui.page("/new")
    async def new_job(request: Request) -> None:
        with framed(request, "New job", "/new") as page:
            LiveHtml(html("<h1>New job</h1>")).classes("head")
            if not page.may_create:
                LiveHtml(html('<p class="empty">Creating a job needs a key of the role write.</p>'))
                return
            name = (
                ui.input(placeholder="Name of the job")
                .props('outlined dense aria-label="Name of the job"')
                .classes("find")
            )
            editor = _Editor(page, EXAMPLE, "", "")

            async def create() -> None:
                pipeline = await editor.pipeline()
                if pipeline is None:
                    return

                async def request_it() -> None:
                    new = NewJob(
                        name=job_name((name.value or "").strip()),
                        sql=pipeline.sql,
                        functions=pipeline.functions,
                        settings=pipeline.settings,
                    )
                    await page.console.controller.create(new)

                if await page.change(request_it):
                    page.console.feeds.jobs.expire(None)
                    ui.navigate.to(f"/jobs/{(name.value or '').strip()}")

            await editor.build([("Create and start", create, "strong")])

    @ui.page("/jobs/{name}/sql")
    async def job_sql(request: Request, name: str) -> None:
        async with job_framed(request, name, "sql") as job:
            if job is None:
                return
            pipeline = job.view.record.pipeline
            sql = await in_thread(masked_sql, pipeline.sql)
            shown = {key: shown_value(key, value) for key, value in pipeline.settings.items()}
            editor = _Editor(job.page, sql, pipeline.functions or "", settings_text(shown))
            actions: list[tuple[str, Callable[[], Awaitable[None]], str]] = []
            if job.page.may_create:
                actions = [("Apply edit…", lambda: _apply(job, editor), "strong")]
            await editor.build(actions)


async def _apply(job: JobPage, editor: _Editor) -> None:
    """Show what the edit does with the state, then apply it if the user agrees."""
    pipeline = await editor.pipeline()
    if pipeline is None:
        return
    controller, name = job.page.console.controller, job.name
    change = (pipeline.sql, pipeline.functions, dict(pipeline.settings))
    try:
        epoch, judged = await controller.preview_edit(name, *change)
    except ResurgenceError as error:
        show_error(error)
        return
    with opened_dialog(f"Apply the edit to {name}?") as dialog:
        LiveHtml(fates_panel(epoch, judged))
        ui.label("A running job switches to the new pipeline after a checkpoint.").classes("note")

        async def confirmed() -> None:
            if await job.page.change(lambda: controller.edit(name, *change), "The edit is applied"):
                job.page.console.feeds.job.expire(name)

        ending(job.page, dialog, "Apply edit", confirmed)


class _Editor:
    """The text, its diagnostics, and its graph."""

    def __init__(self, page: Page, sql: str, functions: str, settings: str) -> None:
        self._page = page
        self._texts = (sql, functions, settings)
        self._compiled_functions = functions
        """The functions that the text is compiled with while the user types: they run when they are
        inspected, so half-typed ones are not.
        """
        self._pending: asyncio.Task[None] | None = None

    async def build(self, actions: list[tuple[str, Callable[[], Awaitable[None]], str]]) -> None:
        sql, functions, settings = self._texts
        with ui.element("div").classes("split"):
            with ui.element("div"):
                self._sql = self._code(sql, "SQL", "SQL").style("height:27rem")
                self._completion = SqlCompletion(self._sql, declared_names(sql, CONNECTORS), _WORDS)
                self._problem = LiveHtml(html(""), self._go).style("margin-top:.6rem")
                with ui.element("div").classes("tools").style("margin-top:.6rem"):
                    for text, action, kind in actions:
                        button(text, action, kind)
                if self._page.may_create:
                    self._build_preview()
            with ui.element("div"):
                LiveHtml(html('<h3 style="margin-bottom:.35rem">Python functions</h3>'))
                self._functions = self._code(functions, "Python", "Python functions").style(
                    "height:15rem"
                )
                LiveHtml(html('<h3 style="margin:.8rem 0 .35rem">Settings</h3>'))
                self._settings = self._code(settings, "Properties files", "Settings").style(
                    "height:8rem"
                )
        EditorShade([self._sql, self._functions, self._settings])
        self._graph = LiveHtml(html(""))
        if not self._page.may_create:
            for each in (self._sql, self._functions, self._settings):
                each.disable()
        for each in (self._sql, self._settings):
            each.on_value_change(self._changed)
        self._functions.on("focusout", self._left_functions)
        await self._compile()

    def _build_preview(self) -> None:
        with ui.element("div").classes("tools").style("margin-top:.6rem"):
            self._query = (
                ui.input(placeholder="Query to preview; by default the last one")
                .props('outlined dense aria-label="Query to preview"')
                .style("flex:1")
            )
            self._preview_button = button("Preview", self._preview)
        self._rows = LiveHtml(html("")).style("margin-top:.6rem")

    async def _preview(self) -> None:
        self._preview_button.disable()
        self._rows.show(html('<p class="note">Reading a sample of the real sources…</p>'))
        found: list[PreviewedTable] = []

        async def run() -> None:
            functions = self._functions.value if self._functions.value.strip() else None
            settings = settings_of(self._settings.value)
            found.append(
                await self._page.console.controller.preview(
                    self._sql.value, functions, settings, self._query.value or ""
                )
            )

        try:
            await self._page.change(run)
        finally:
            self._preview_button.enable()
            self._rows.show(preview_panel(found[0]) if found else html(""))

    def _code(self, text: str, language: str, name: str) -> ui.codemirror:
        code = ui.codemirror(text, line_wrapping=False)
        code.set_language(language)  # type: ignore[arg-type]
        return code.props(
            f'aria-label="{name}" aria-description="Escape, then Tab leaves the editor"'
        )

    def _changed(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
        self._pending = asyncio.create_task(self._compile_soon())

    def _left_functions(self) -> None:
        if self._functions.value != self._compiled_functions:
            self._compiled_functions = self._functions.value
            self._changed()

    async def _compile_soon(self) -> None:
        await asyncio.sleep(_PAUSE)
        self._completion.show(await in_thread(declared_names, self._sql.value, CONNECTORS))
        await self._compile()

    async def _compile(self) -> None:
        """Compile the text and show its graph, or the error at its place."""
        text = self._sql.value
        if not text.strip():
            self._show_error(None, text)
            return
        try:
            graph = await self._compiled(text)
        except ResurgenceError as error:
            if text == self._sql.value:
                self._show_error(error, text)
            return
        if text == self._sql.value:
            self._show_error(None, text)
            self._problem.show(no_problem(len(graph.operators)))
            self._graph.show(await in_thread(dataflow_panel, Dataflow(graph), ""))

    async def _compiled(self, text: str) -> Graph:
        visitor = await self._page.console.doorkeeper.again(self._page.visitor)
        functions = self._compiled_functions if self._compiled_functions.strip() else None
        if text != self._texts[0] or functions != (self._texts[1] or None):
            visitor.require_write()
        settings = {} if not visitor.may_write else settings_of(self._settings.value)
        async with _COMPILING:
            return await self._page.console.controller.compiled_text(text, functions, settings)

    def _show_error(self, error: ResurgenceError | None, text: str) -> None:
        marks: list[dict[str, object]] = []
        if isinstance(error, SqlError):
            found = marked_range(text, error.line, error.column)
            if found is not None:
                marks = [{"kind": "mark", "from": found[0], "to": found[1], "class": "rsg-error"}]
        if marks or self._sql.decorations:
            # Also if they are equal to those before: the browser has moved these with the text.
            self._sql.decorations = marks
        place = error.line if isinstance(error, SqlError) else 0
        last = text.count("\n") + 1
        self._sql.line_tooltips = {min(place, last): error.message} if error and place else {}
        self._problem.show(problem(error) if error is not None else html(""))

    async def _go(self, facts: dict[str, str]) -> None:
        if facts["action"] == "place":
            self._sql.reveal_line(min(int(facts["line"]), self._sql.value.count("\n") + 1))

    async def pipeline(self) -> PipelineRecord | None:
        """Return what was typed, if it may be stored; else show why not."""
        try:
            visitor = await self._page.console.doorkeeper.again(self._page.visitor)
            visitor.require_write()
            settings = settings_of(self._settings.value)
            require_no_literal_secrets_in(settings)
            await in_thread(require_no_literal_secrets, self._sql.value)
        except ResurgenceError as error:
            show_error(error)
            return None
        functions = self._functions.value if self._functions.value.strip() else None
        return PipelineRecord(self._sql.value, "", functions, settings)
