"""The checkpoints of a job: contents, verification, rollback with its dry run first."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from resurgence.control.background import in_thread
from resurgence.control.jobs.job_keeper import open_state
from resurgence.errors import ResurgenceError
from resurgence.ids import Epoch
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.checkpoints import (
    CheckpointStatus,
    CheckpointView,
    checkpoint_of,
    kept_checkpoints,
)
from resurgence.state.inspection.verification import Verification, Verifier, condemn, condemnable
from resurgence.ui.dialogs import button, ending, opened_dialog
from resurgence.ui.elements.live_html import LiveHtml
from resurgence.ui.frame import show_error
from resurgence.ui.job_frame import JobPage, job_framed
from resurgence.ui.shown import PageKey
from resurgence.ui.views.checkpoints import rollback_panel, verdict
from resurgence.ui.views.markup import Markup, html


def add() -> None:
    @ui.page("/jobs/{name}/checkpoints")
    async def checkpoints_page(request: Request, name: str) -> None:
        async with job_framed(request, name, "checkpoints") as job:
            if job is not None:
                shown = _List(job)
                await shown.build()
                job.follow(shown.redraw, every=5.0)


class _List:
    """The retained checkpoints, the newest first."""

    def __init__(self, job: JobPage) -> None:
        self._job = job
        self._page = 0
        self._opened: int | None = None

    async def build(self) -> None:
        self._element = LiveHtml(await self._content(), self._act)

    async def redraw(self) -> None:
        self._element.show(await self._content())

    async def _content(self) -> Markup:
        may_write = self._job.page.visitor.may_write
        key = PageKey(self._job.name, self._page, may_write, self._opened)
        return await self._job.page.console.shown.checkpoints.get(key)

    async def _act(self, facts: dict[str, str]) -> None:
        match facts["action"]:
            case "page":
                self._page = max(0, int(facts["value"]))
                await self.redraw()
            case "contents":
                epoch = int(facts["epoch"])
                self._opened = None if self._opened == epoch else epoch
                await self.redraw()
            case "verify":
                await self._verify(int(facts["epoch"]))
            case "rollback":
                await self._roll_back(Epoch(int(facts["epoch"])))

    async def _verify(self, epoch: int) -> None:
        with opened_dialog(f"Verify epoch {epoch}") as dialog:
            found = LiveHtml(html("<p>Reading every file that the checkpoint depends on…</p>"))
            with ui.element("div").classes("row-end"):
                button("Close", dialog.close)

        async def verify() -> None:
            backend = open_state((await self._job.now()).record)
            result, is_condemned = await in_thread(_verified, backend, epoch)
            found.show(verdict(result, condemned=is_condemned))

        if await self._job.page.change(verify):
            self._job.page.console.feeds.checkpoints.expire(self._job.name)
            await self.redraw()
        else:
            dialog.close()

    async def _roll_back(self, epoch: Epoch) -> None:
        controller, name = self._job.page.console.controller, self._job.name
        try:
            preview = await controller.preview_rollback(name, epoch)
        except ResurgenceError as error:
            show_error(error)
            return
        with opened_dialog(f"Roll back {name} to epoch {epoch}?") as dialog:
            LiveHtml(rollback_panel(preview))
            keeps = any(not each.retracts for each in preview.sinks)
            accept = ui.checkbox("Accept duplicate rows in sinks that keep theirs")
            accept.set_visibility(keeps)

            async def confirmed() -> None:
                done = await self._job.page.change(
                    lambda: controller.rollback(
                        name, epoch, accept_duplicates=bool(keeps and accept.value)
                    ),
                    f"Requested to roll back to epoch {epoch}",
                )
                if done:
                    self._job.page.console.feeds.checkpoints.expire(name)
                    await self.redraw()

            ending(self._job.page, dialog, "Roll back", confirmed, "danger")


def _verified(backend: StateBackend, epoch: int) -> tuple[Verification, bool]:
    """Verify a checkpoint, and condemn it if it is damaged and another one is usable."""
    views = kept_checkpoints(backend)
    view: CheckpointView = checkpoint_of(views, epoch)
    found = Verifier(backend).verify(backend.paths.manifest(view.epoch, view.attempt or 0))
    usable = {each.epoch for each in views if each.status is CheckpointStatus.VALID}
    condemned = [each for each in condemnable([found], usable) if condemn(backend, each)]
    return found, bool(condemned)
