"""The actions on a job, each in a dialog that says what it does before it does it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from resurgence.control.jobs.job_record import StopMode
from resurgence.control.jobs.transitions import TERMINAL
from resurgence.errors import ResurgenceError
from resurgence.ids import JobName
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
    with ui.dialog() as dialog, ui.card().classes("dialog"):
        _heading(name)

        def choice(text: str, action: Callable[[], Awaitable[None]]) -> None:
            async def chosen() -> None:
                dialog.close()
                await action()

            button(text, chosen).classes("choice")

        if is_active:
            choice("Stop…", lambda: stop_dialog(page, name, redraw))
        else:
            choice("Start", lambda: start(page, name, redraw))
        if page.may_create:
            choice("Restart…", lambda: restart_dialog(page, name, redraw))
            choice("Rescale…", lambda: rescale_dialog(page, name, redraw))
            choice("Delete…", lambda: delete_dialog(page, name, redraw))
        button("Cancel", dialog.close)
    dialog.open()


def button(text: str, action: Callable[[], object], kind: str = "") -> ui.button:
    """Return a button in the style of the console."""
    return (
        ui.button(text, on_click=action, color=None).props("flat no-caps").classes(f"plain {kind}")
    )


async def start(page: Page, name: str, redraw: Redraw) -> None:
    """Start a job."""
    await _change(page, name, lambda: page.console.controller.start(JobName(name)), "start", redraw)


async def stop_dialog(page: Page, name: str, redraw: Redraw) -> None:
    with ui.dialog() as dialog, ui.card().classes("dialog"):
        _heading(f"Stop {name}?")
        ui.label("The worker finishes its epoch, seals a checkpoint and commits it, then stops.")
        force = ui.checkbox("Kill the worker at once, without a checkpoint")

        async def confirmed() -> None:
            dialog.close()
            mode = StopMode.FORCE if force.value else StopMode.CHECKPOINT
            request = page.console.controller.stop
            await _change(page, name, lambda: request(JobName(name), mode), "stop", redraw)

        _ending(dialog, "Stop job", confirmed)
    dialog.open()


async def restart_dialog(page: Page, name: str, redraw: Redraw) -> None:
    with ui.dialog() as dialog, ui.card().classes("dialog"):
        _heading(f"Restart {name}?")
        ui.label("A new run begins from the newest checkpoint.")
        force = ui.checkbox("Do not wait for a checkpoint")
        anew = ui.checkbox("Start without state, this once: all results begin anew")

        async def confirmed() -> None:
            dialog.close()
            request = page.console.controller.restart
            await _change(
                page,
                name,
                lambda: request(JobName(name), force=force.value, without_state=anew.value),
                "restart",
                redraw,
            )

        _ending(dialog, "Restart job", confirmed)
    dialog.open()


async def rescale_dialog(page: Page, name: str, redraw: Redraw) -> None:
    view = await page.console.feeds.job.get(name)
    with ui.dialog() as dialog, ui.card().classes("dialog"):
        _heading(f"Rescale {name}")
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
            dialog.close()
            to = max(1, min(MOST_SUBTASKS, int(number.value or 1)))
            request = page.console.controller.rescale
            await _change(page, name, lambda: request(JobName(name), to), "rescale", redraw)

        _ending(dialog, "Rescale job", confirmed)
    dialog.open()


async def delete_dialog(page: Page, name: str, redraw: Redraw) -> None:
    with ui.dialog() as dialog, ui.card().classes("dialog"):
        _heading(f"Delete {name}?")
        ui.label("The job is stopped at once and removed from the service. Its output stays.")
        state = ui.checkbox("Delete its checkpoints, too")
        typed = ui.input("Type the name of the job to confirm").props("outlined").classes("tall")

        async def confirmed() -> None:
            if typed.value != name:
                return
            dialog.close()
            request = page.console.controller.delete
            with_state = bool(state.value)
            await _change(
                page, name, lambda: request(JobName(name), with_state=with_state), "delete", redraw
            )

        sure = _ending(dialog, "Delete job", confirmed, "danger")
        sure.bind_enabled_from(typed, "value", lambda value: value == name)
    dialog.open()


def _heading(text: str) -> None:
    ui.label(text).props("role=heading aria-level=2").style("font-weight:600;font-size:1.05rem")


def _ending(
    dialog: ui.dialog, text: str, confirmed: Callable[[], Awaitable[None]], kind: str = "strong"
) -> ui.button:
    with ui.element("div").classes("row-end"):
        button("Cancel", dialog.close)
        return button(text, confirmed, kind)


async def _change(
    page: Page, name: str, request: Callable[[], Awaitable[object]], verb: str, redraw: Redraw
) -> None:
    if await page.change(request, f"Requested to {verb} {name}"):
        page.console.feeds.jobs.expire(None)
        page.console.feeds.views.expire(None)
        page.console.feeds.job.expire(name)
        await redraw()
