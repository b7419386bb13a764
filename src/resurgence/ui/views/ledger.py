"""The ledger of a job: row counts by epoch, and whether they are consistent; pure."""

from __future__ import annotations

from collections.abc import Mapping

from resurgence.ids import OperatorId
from resurgence.state.inspection.ledger import Ledger, LedgerLine, Verdict
from resurgence.ui.views.lists import pager
from resurgence.ui.views.markup import NOTHING, Markup, html
from resurgence.ui.views.numbers import byte_size, count

PAGE = 50


def ledger_panel(ledger: Ledger, page: int) -> Markup:
    """Return one page of the ledger, the newest epoch first, below the verdict."""
    if not ledger.lines:
        return html('<div class="panel"><p class="empty">There are no epochs yet.</p></div>')
    wrong = [each for each in ledger.checks if each.verdict is Verdict.MISMATCH]
    if wrong:
        summary = html(
            '<div class="alert" role="alert"><b>The ledger does not balance.</b>{}</div>',
            html.join(
                html('<div class="hint">epoch {}: {}: {}</div>', each.epoch, each.kind, each.detail)
                for each in wrong[:20]
            ),
        )
    else:
        passed = sum(each.verdict is Verdict.OK for each in ledger.checks)
        summary = html(
            '<p class="note"><span class="state good"><i></i>balances</span> · {} checks over {} epochs</p>',
            count(passed),
            count(len(ledger.lines)),
        )
    lines = ledger.lines[::-1][page * PAGE : (page + 1) * PAGE]
    totals = NOTHING
    if ledger.totals is not None:
        counts = ledger.totals.counts
        totals = html(
            '<tr><th scope="row">total</th><td class="dim">since epoch {}</td>{}<td></td><td></td></tr>',
            ledger.totals.since,
            _counts(
                counts.rows_in,
                counts.bad_rows,
                counts.dead_rows,
                counts.late_rows,
                counts.kept_rows,
                counts.rows_out,
            ),
        )
    return html(
        '{}<section class="panel"><div class="scroll"><table class="grid"><thead><tr><th>Epoch</th>'
        '<th>Status</th><th class="num">In</th><th class="num">Bad</th><th class="num">Dead</th>'
        '<th class="num">Late</th><th class="num">Kept</th><th class="num">Out</th>'
        '<th class="num">State rows</th><th class="num">State</th></tr></thead><tbody>{}{}</tbody></table>'
        "</div></section>",
        summary,
        totals,
        html.join(_line(each) for each in lines),
    )


def ledger_page(ledger: Ledger, page: int) -> Markup:
    """Return one page of the ledger with its pager."""
    return html("{}{}", ledger_panel(ledger, page), pager(page, PAGE, len(ledger.lines)))


def _line(line: LedgerLine) -> Markup:
    counts = line.counts
    return html(
        '<tr><th scope="row">{}</th><td>{}</td>{}<td class="num">{}</td><td class="num">{}</td></tr>',
        line.epoch,
        line.status,
        _counts(
            counts.rows_in,
            counts.bad_rows,
            counts.dead_rows,
            counts.late_rows,
            counts.kept_rows,
            counts.rows_out,
        ),
        count(line.state_rows),
        byte_size(line.state_bytes),
    )


def _counts(*counts: Mapping[OperatorId, int]) -> Markup:
    """Return a cell for each kind of rows; its title has them by operator."""
    return html.join(
        html(
            '<td class="num" title="{}">{}</td>',
            "\n".join(f"{name}: {rows:,}" for name, rows in each.items()),
            count(sum(each.values())),
        )
        for each in counts
    )
