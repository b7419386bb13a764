"""Chips that choose a part of a list, and the pager below it; pure."""

from __future__ import annotations

from collections.abc import Mapping

from resurgence.ui.views.markup import NOTHING, Markup, html


def chips(names: Mapping[str, str], counts: Mapping[str, int] | None, chosen: str) -> Markup:
    """Return a button for each part, the chosen one pressed."""
    return html(
        '<div class="chips" role="group">{}</div>',
        html.join(
            html(
                '<button class="chip" data-action="group" data-value="{}" aria-pressed="{}">{}{}'
                "</button>",
                key,
                "true" if key == chosen else "false",
                name,
                html("<b>{}</b>", counts.get(key, 0)) if counts is not None else "",
            )
            for key, name in names.items()
        ),
    )


def pager(page: int, size: int, total: int) -> Markup:
    """Return the buttons to the pages before and after, unless one page holds everything."""
    if total <= size:
        return NOTHING
    first, last = page * size + 1, min(total, (page + 1) * size)
    return html(
        '<div class="pages"><span>{}–{} of {}</span>{}{}</div>',
        f"{first:,}",
        f"{last:,}",
        f"{total:,}",
        _step(page - 1, "Previous", page > 0),
        _step(page + 1, "Next", last < total),
    )


def _step(page: int, name: str, exists: bool) -> Markup:
    off = NOTHING if exists else html.trusted(" disabled")
    return html(
        '<button class="plain" data-action="page" data-value="{}"{}>{}</button>', page, off, name
    )
