"""Dead letters as a list; pure."""

from __future__ import annotations

from collections.abc import Sequence

from resurgence.api.models import DeadLetter, DeadLetters
from resurgence.ui.views.jobs import since
from resurgence.ui.views.lists import pager
from resurgence.ui.views.markup import NOTHING, Markup, html

PAGE = 50


def letters_table(letters: Sequence[DeadLetter], *, may_write: bool) -> Markup:
    """Return a table of dead letters, each with its raw record."""
    if not letters:
        return html('<p class="empty">There are no dead letters.</p>')
    return html(
        '<div class="scroll"><table class="grid"><thead><tr><th>Id</th><th>Operator</th><th>Position</th>'
        "<th>Error and record</th><th>At</th><th></th></tr></thead><tbody>{}</tbody></table></div>",
        html.join(_line(each, may_write) for each in letters),
    )


def letters_panel(found: DeadLetters, page: int, *, may_write: bool) -> Markup:
    """Return one page of dead letters, the newest first."""
    letters = found.dead_letters[::-1]
    every, omitted = NOTHING, NOTHING
    if may_write and any(not each.replayed for each in letters):
        every = html('<button class="plain" data-action="replay-all">Replay all…</button>')
    if found.omitted:
        omitted = html('<p class="note">{} older ones are not listed.</p>', f"{found.omitted:,}")
    return html(
        '<div class="tools">{}{}</div><section class="panel" style="margin-top:.75rem">{}{}</section>',
        every,
        omitted,
        letters_table(letters[page * PAGE : (page + 1) * PAGE], may_write=may_write),
        pager(page, PAGE, len(letters)),
    )


def _line(letter: DeadLetter, may_write: bool) -> Markup:
    action = NOTHING
    if letter.replayed:
        action = html('<span class="dim">replay requested</span>')
    elif may_write:
        action = html(
            '<button class="quiet" data-action="replay" data-letter="{}">Replay…</button>',
            letter.id,
        )
    raw = html('<span class="dim">no value</span>')
    if letter.raw is not None:
        raw = html('<pre class="raw">{}</pre>', letter.raw[:4000])
    return html(
        '<tr data-key="{id}" data-letter="{id}"><th scope="row">{id}</th><td>{operator}</td><td class="wrap">{position}'
        '</td><td class="wrap">{error}<details><summary>Raw record</summary>{raw}</details></td>'
        '<td>{at}</td><td class="end">{action}</td></tr>',
        id=letter.id,
        operator=letter.operator,
        position=letter.position,
        error=letter.error,
        raw=raw,
        at=since(letter.at.isoformat(timespec="seconds"), ago=True),
        action=action,
    )
