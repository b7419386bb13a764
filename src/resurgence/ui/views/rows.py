"""Rows of a query as a table; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from resurgence.ui.views.markup import Markup, html

_LONGEST = 300


def rows_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], kinds: Sequence[bool]
) -> Markup:
    """Return a table; `kinds` says which columns are numbers."""
    return html(
        '<div class="scroll"><table class="grid"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>',
        html.join(
            html('<th scope="col"{}>{}</th>', _num(is_number), name)
            for name, is_number in zip(columns, kinds, strict=True)
        ),
        html.join(
            html(
                "<tr>{}</tr>",
                html.join(
                    html("<td{}>{}</td>", _num(is_number), _cell(value))
                    for value, is_number in zip(row, kinds, strict=True)
                ),
            )
            for row in rows
        ),
    )


def arrow_table(found: pa.Table) -> Markup:
    """Return the rows of an Arrow table, which the caller has bounded."""
    kinds = [
        pa.types.is_integer(each.type)
        or pa.types.is_floating(each.type)
        or pa.types.is_decimal(each.type)
        for each in found.schema
    ]
    columns = [each.to_pylist() for each in found.columns]
    return rows_table(found.column_names, zip(*columns, strict=True), kinds)


def _num(is_number: bool) -> Markup:
    return html.trusted(' class="num"' if is_number else "")


def _cell(value: object) -> object:
    if value is None:
        return html('<span class="dim">null</span>')
    text = repr(value) if isinstance(value, bytes) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
