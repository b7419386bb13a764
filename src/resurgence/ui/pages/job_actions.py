"""The actions on a job, each in a dialog that says what it does before it does it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from resurgence.control.jobs.job_record import StopMode
from resurgence.control.jobs.transitions import TERMINAL
from resurgence.errors import ResurgenceError
from resurgence.ids import JobName
from resurgence.ui.dialogs import button, choice, ending, opened_dialog
from resurgence.ui.frame import Page, show_error

MOST_SUBTASKS = 64
Redraw = Callable[[], Awaitable[None]]


async def job_menu(page: Page, name: str, redraw: Redraw) -> None:
    """Offer all actions on a job."""
    try:
        view = await page.console.feeds.job.get(name)
    except ResurgenceError as error:
        show_error(error)
        return
    is_active = view.record.status.state not in TERMINAL
    with opened_dialog(name) as dialog:

        def offer(text: str, action: Callable[[], Awaitable[None]]) -> None:
            choice(page, dialog, text, action, "choice")

        if is_active:
            offer("Stop…", lambda: stop_dialog(page, name, redraw))
        else:
            offer("Start", lambda: start(page, name, redraw))
        if page.may_create:
            offer("Restart…", lambda: restart_dialog(page, name, redraw))
            offer("Rescale…", lambda: rescale_dialog(page, name, redraw))
            offer("Delete…", lambda: delete_dialog(page, name, redraw))
        button("Cancel", dialog.close)


async def start(page: Page, name: str, redraw: Redraw) -> None:
    """Start a job."""
    await _change(page, name, lambda: page.console.controller.start(JobName(name)), "start", redraw)


async def stop_dialog(page: Page, name: str, redraw: Redraw) -> None:
    with opened_dialog(f"Stop {name}?") as dialog:
        ui.label("The worker finishes its epoch, seals a checkpoint and commits it, then stops.")
        force = ui.checkbox("Kill the worker at once, without a checkpoint")

        async def confirmed() -> None:
            mode = StopMode.FORCE if force.value else StopMode.CHECKPOINT
            request = page.console.controller.stop
            await _change(page, name, lambda: request(JobName(name), mode), "stop", redraw)

        ending(page, dialog, "Stop job", confirmed)


async def restart_dialog(page: Page, name: str, redraw: Redraw) -> None:
    with opened_dialog(f"Restart {name}?") as dialog:
        ui.label("A new run begins from the newest checkpoint.")
        force = ui.checkbox("Do not wait for a checkpoint")
        anew = ui.checkbox("Start without state, this once: all results begin anew")

        async def confirmed() -> None:
            request = page.console.controller.restart
            await _change(
                page,
                name,
                lambda: request(JobName(name), force=force.value, without_state=anew.value),
                "restart",
                redraw,
            )

        ending(page, dialog, "Restart job", confirmed)


async def rescale_dialog(page: Page, name: str, redraw: Redraw) -> None:
    view = await page.console.feeds.job.get(name)
    with opened_dialog(f"Rescale {name}") as dialog:
        ui.label("The job continues with another number of subtasks, after a checkpoint.")
        number = (
            ui.number(
                "Parallelism",
                value=view.record.desired.parallelism,
                min=1,
                max=MOST_SUBTASKS,
                precision=0,
            )
            .props("outlined")
            .classes("tall")
        )

        async def confirmed() -> None:
            to = max(1, min(MOST_SUBTASKS, int(number.value or 1)))
            request = page.console.controller.rescale
            await _change(page, name, lambda: request(JobName(name), to), "rescale", redraw)

        ending(page, dialog, "Rescale job", confirmed)


async def delete_dialog(page: Page, name: str, redraw: Redraw) -> None:
    with opened_dialog(f"Delete {name}?") as dialog:
        ui.label("The job is stopped at once and removed from the service. Its output stays.")
        state = ui.checkbox("Delete its checkpoints, too")
        typed = ui.input("Type the name of the job to confirm").props("outlined").classes("tall")

        async def confirmed() -> None:
            if typed.value != name:
                return
            request = page.console.controller.delete
            with_state = bool(state.value)
            await _change(
                page, name, lambda: request(JobName(name), with_state=with_state), "delete", redraw
            )

        sure = ending(page, dialog, "Delete job", confirmed, "danger")
        sure.bind_enabled_from(typed, "value", lambda value: value == name)


async def _change(
    page: Page, name: str, request: Callable[[], Awaitable[object]], verb: str, redraw: Redraw
) -> None:
    if await page.change(request, f"Requested to {verb} {name}"):
        page.console.feeds.jobs.expire(None)
        page.console.feeds.views.expire(None)
        page.console.feeds.job.expire(name)
        await redraw()
