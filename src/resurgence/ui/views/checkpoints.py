"""Checkpoints: the list, what each operator holds, the preview of a rollback; pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from resurgence.control.jobs.rollback_preview import RollbackPreview
from resurgence.state.inspection.checkpoints import CheckpointStatus, CheckpointView
from resurgence.state.inspection.verification import Verification
from resurgence.state.records import OperatorCheckpointMetadata, TableKind
from resurgence.ui.views.dataflow import watermark_text
from resurgence.ui.views.jobs import since
from resurgence.ui.views.lists import pager
from resurgence.ui.views.markup import NOTHING, Markup, html
from resurgence.ui.views.numbers import UNKNOWN, byte_size, count, short_count, span

PAGE = 25
_TONES = {
    CheckpointStatus.VALID: "good",
    CheckpointStatus.DAMAGED: "bad",
    CheckpointStatus.CONDEMNED: "bad",
    CheckpointStatus.DEAD: "off",
    CheckpointStatus.NEWER: "warn",
}


def checkpoints_table(
    views: Sequence[CheckpointView], *, may_write: bool, opened: int | None
) -> Markup:
    """Return a table of checkpoints; `opened` is the epoch whose contents are shown."""
    if not views:
        return html('<p class="empty">There are no checkpoints yet.</p>')
    return html(
        '<div class="scroll"><table class="grid"><thead><tr><th>Epoch</th><th>Status</th><th>Sealed</th>'
        '<th class="num">Duration</th><th class="num">Size</th><th class="num">Files</th>'
        '<th class="num">State rows</th><th class="num">Generation</th><th>Committed</th><th></th></tr>'
        "</thead><tbody>{}</tbody></table></div>",
        html.join(_line(each, may_write, opened) for each in views),
    )


def checkpoints_panel(
    views: Sequence[CheckpointView], page: int, *, may_write: bool, opened: int | None
) -> Markup:
    """Return one page of checkpoints, the newest first."""
    part = views[::-1][page * PAGE : (page + 1) * PAGE]
    return html(
        '<section class="panel">{}{}</section>',
        checkpoints_table(part, may_write=may_write, opened=opened),
        pager(page, PAGE, len(views)),
    )


def _line(view: CheckpointView, may_write: bool, opened: int | None) -> Markup:
    manifest = view.manifest
    is_open = opened == view.epoch
    buttons = [_button("contents", view.epoch, "Hide" if is_open else "Contents")]
    if may_write and view.stands:
        buttons.append(_button("verify", view.epoch, "Verify"))
    if may_write and view.status is CheckpointStatus.VALID:
        buttons.append(_button("rollback", view.epoch, "Roll back…"))
    reasons = html.join(html('<div class="why">{}</div>', each) for each in view.reasons)
    contents = NOTHING
    if is_open:
        contents = html(
            '<tr data-key="contents-{}"><td colspan="10" style="background:var(--bg)">{}</td></tr>',
            view.epoch,
            checkpoint_contents(view),
        )
    return html(
        '<tr data-key="{epoch}" data-epoch="{epoch}"><th scope="row">{epoch}</th>'
        '<td><span class="state {tone}"><i></i>{status}</span>{reasons}</td>'
        '<td>{sealed}</td><td class="num">{duration}</td><td class="num">{size}</td>'
        '<td class="num">{files}</td><td class="num">{rows}</td><td class="num">{generation}</td>'
        '<td>{committed}</td><td class="end">{buttons}</td></tr>{contents}',
        epoch=view.epoch,
        tone=_TONES[view.status],
        status=view.status,
        reasons=reasons,
        sealed=since(manifest.sealed_at.isoformat(timespec="seconds"), ago=True)
        if manifest
        else UNKNOWN,
        duration=span(view.duration.total_seconds() if view.duration else None),
        size=byte_size(view.bytes) if manifest else UNKNOWN,
        files=len(view.files) if manifest else UNKNOWN,
        rows=short_count(view.rows) if manifest else UNKNOWN,
        generation=manifest.generation if manifest else UNKNOWN,
        committed="yes" if view.is_committed else html('<span class="warn">not yet</span>'),
        buttons=html.join(buttons),
        contents=contents,
    )


def _button(action: str, epoch: int, text: str) -> Markup:
    return html(
        '<button class="quiet" data-action="{}" data-epoch="{}">{}</button>', action, epoch, text
    )


def checkpoint_contents(view: CheckpointView) -> Markup:
    """Return what each operator holds."""
    if not view.operators:
        return html('<p class="note">No operator is readable.</p>')
    return html(
        '<table class="grid"><thead><tr><th>Operator</th><th>Watermark</th><th>Read</th><th>Table</th>'
        '<th class="num">Files</th><th class="num">Rows</th><th class="num">Size</th></tr></thead>'
        "<tbody>{}</tbody></table>",
        html.join(_operator(name, each) for name, each in view.operators.items()),
    )


def _operator(name: str, metadata: OperatorCheckpointMetadata) -> Markup:
    read = NOTHING
    if metadata.input is not None:
        read = html(
            '{} rows, to <span class="mono">{}</span>',
            count(metadata.input.rows),
            _short(json.dumps(metadata.input.end)),
        )
    first = (watermark_text(metadata.watermark) or UNKNOWN, read)
    if not metadata.tables:
        return html(
            '<tr><th scope="row">{}</th><td>{}</td><td class="wrap">{}</td><td class="dim">none</td>'
            "<td></td><td></td><td></td></tr>",
            name,
            *first,
        )
    lines = []
    for number, (table, stored) in enumerate(metadata.tables.items()):
        is_global = stored.kind is TableKind.GLOBAL
        lines.append(
            html(
                '<tr><th scope="row">{}</th><td>{}</td><td class="wrap">{}</td><td>{}</td>'
                '<td class="num">{}</td><td class="num">{}</td><td class="num">{}</td></tr>',
                name if number == 0 else "",
                first[0] if number == 0 else "",
                first[1] if number == 0 else "",
                f"{table} ({stored.kind})",
                "" if is_global else len(stored.files),
                1 if is_global else count(sum(file.rows for file in stored.files)),
                "" if is_global else byte_size(sum(file.bytes for file in stored.files)),
            )
        )
    return html.join(lines)


def rollback_panel(preview: RollbackPreview) -> Markup:
    """Return the dry run of a rollback."""
    undone = "No sealed epoch is undone."
    if preview.undone is not None:
        first, last = preview.undone
        undone = f"Undoes epoch {first}." if first == last else f"Undoes epochs {first} to {last}."
    if preview.held is not None:
        undone += f" Sinks also retract up to epoch {preview.held}, which only they have recorded."
    return html(
        '<p>{} {} output rows are undone.</p><table class="grid"><thead><tr><th>Sink</th>'
        '<th class="num">Rows</th><th>Effect</th></tr></thead><tbody>{}</tbody></table>'
        '<table class="grid"><thead><tr><th>Source</th><th>Read again from</th><th class="num">Rows</th>'
        "</tr></thead><tbody>{}</tbody></table>",
        undone,
        count(preview.rows),
        html.join(
            html(
                '<tr><td>{}</td><td class="num">{}</td><td>{}</td></tr>',
                each.table,
                count(each.rows),
                "retracts them"
                if each.retracts
                else html('<span class="bad">keeps them, and receives them again</span>'),
            )
            for each in preview.sinks
        ),
        html.join(
            html(
                '<tr><td>{}</td><td class="mono wrap">{}</td><td class="num">{}</td></tr>',
                each.operator,
                "the beginning" if each.offset is None else _short(json.dumps(each.offset)),
                count(each.rows),
            )
            for each in preview.sources
        ),
    )


def verdict(found: Verification, *, condemned: bool) -> Markup:
    """Return the result of a verification."""
    if found.went:
        text = "no longer retained"
    elif found.faults:
        text = "damaged"
    elif found.unchecked:
        text = "not checked completely"
    else:
        text = "intact"
    more = NOTHING
    if condemned:
        more = html("<p>It is condemned: no restore will use it.</p>")
    elif found.faults:
        more = html("<p>It is not condemned, because no other checkpoint is usable.</p>")
    return html(
        "<p><b>Epoch {} is {}.</b> Read {} files, {}, in {}.</p>{}{}",
        found.epoch,
        text,
        count(found.files),
        byte_size(found.bytes),
        span(found.seconds),
        html.join(html('<p class="bad">{}</p>', each) for each in found.reasons),
        more,
    )


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:119]}…"
