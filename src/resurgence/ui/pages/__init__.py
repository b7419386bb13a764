"""The pages of the console, one module each."""

from __future__ import annotations


def add_pages() -> None:
    """Register all pages with NiceGUI."""
    from resurgence.ui.pages import (
        checkpoints,
        dead_letters,
        editor,
        events,
        incidents,
        job,
        jobs,
        ledger,
        logs,
        state,
        workers,
    )

    for each in (
        jobs,
        job,
        incidents,
        checkpoints,
        state,
        dead_letters,
        editor,
        ledger,
        events,
        logs,
        workers,
    ):
        each.add()
