"""The dead letters of a job: raw records, errors, replay, also of corrected records."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request
from nicegui import ui

from resurgence.api.dead_letter_answer import replayed_answer
from resurgence.api.models import DeadLetter
from resurgence.state.inspection.dead_letters import Correction, LetterFilter
from resurgence.ui.dialogs import ending, opened_dialog
from resurgence.ui.elements.live_html import LiveHtml
from resurgence.ui.job_frame import JobPage, job_framed
from resurgence.ui.shown import PageKey
from resurgence.ui.views.markup import Markup


def add() -> None:
    @ui.page("/jobs/{name}/dead-letters")
    async def letters_page(request: Request, name: str) -> None:
        async with job_framed(request, name, "dead-letters") as job:
            if job is not None:
                shown = _Letters(job)
                await shown.build()
                job.follow(shown.redraw, every=5.0)


class _Letters:
    """The newest dead letters, the newest first."""

    def __init__(self, job: JobPage) -> None:
        self._job = job
        self._page = 0

    async def build(self) -> None:
        self._element = LiveHtml(await self._content(), self._act)

    async def redraw(self) -> None:
        self._element.show(await self._content())

    async def _content(self) -> Markup:
        key = PageKey(self._job.name, self._page, self._job.page.visitor.may_write)
        return await self._job.page.console.shown.letters.get(key)

    async def _act(self, facts: dict[str, str]) -> None:
        found = (await self._job.page.console.feeds.letters.get(self._job.name)).dead_letters
        match facts["action"]:
            case "page":
                self._page = max(0, int(facts["value"]))
                await self.redraw()
            case "replay":
                chosen = [each for each in found if each.id == facts["letter"]]
                if chosen:
                    self._dialog(chosen)
            case "replay-all":
                self._dialog([each for each in found if not each.replayed])

    def _dialog(self, letters: Sequence[DeadLetter]) -> None:
        alone = letters[0] if len(letters) == 1 else None
        title = f"Replay dead letter {alone.id}" if alone else f"Replay {len(letters)} dead letters"
        with opened_dialog(f"{title}?") as dialog:
            ui.label("A later epoch of the source reads them again, exactly once.")
            text = None
            if alone is not None and alone.raw is not None and alone.raw_base64 is None:
                text = (
                    ui.textarea("Record", value=alone.raw)
                    .props("outlined autogrow")
                    .classes("mono tall")
                )

            async def confirmed() -> None:
                corrected: dict[str, Correction] = {}
                if alone is not None and text is not None and text.value != alone.raw:
                    corrected[alone.id] = Correction((text.value or "").encode())
                await self._replay([each.id for each in letters], corrected)

            ending(self._job.page, dialog, "Replay", confirmed)

    async def _replay(self, ids: list[str], corrected: dict[str, Correction]) -> None:
        controller, name = self._job.page.console.controller, self._job.name

        async def replay() -> None:
            letters = await controller.dead_letters(name, LetterFilter(ids=frozenset(ids)))
            outcome = replayed_answer(
                await controller.replay(name, letters.rows, corrected, again=False)
            )
            warnings = "; ".join(outcome.warnings)
            ui.notify(
                f"{outcome.rows} dead letters will be read again",
                caption=warnings or None,
                position="bottom-right",
            )

        if await self._job.page.change(replay):
            self._job.page.console.feeds.letters.expire(name)
            await self.redraw()
