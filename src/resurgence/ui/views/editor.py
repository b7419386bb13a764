"""What an editor of pipelines shows about its text; pure."""

from __future__ import annotations

from collections.abc import Sequence

from resurgence.engine.preview import PreviewedTable
from resurgence.errors import ConfigError, ResurgenceError, SqlError
from resurgence.state.inspection.edits import Fate, OperatorFate
from resurgence.ui.views.markup import NOTHING, Markup, html
from resurgence.ui.views.rows import rows_table

EXAMPLE = """\
CREATE TABLE clicks WITH (connector = 'impulse', event_rate = '100');

CREATE TABLE per_second (second TIMESTAMP, clicks BIGINT)
WITH (connector = 'filesystem', path = 'out/per_second', format = 'json', type = 'sink');

INSERT INTO per_second
SELECT window.start, n FROM (
    SELECT tumble(INTERVAL '1 second') AS window, count(*) AS n
    FROM clicks
    GROUP BY window
);
"""
_TONES = {Fate.KEEP: "good", Fate.MIGRATE: "warn", Fate.DROP: "off", Fate.REBUILD: "busy"}


def marked_range(text: str, line: int, column: int) -> tuple[int, int] | None:
    """Return the word at a place, from 1, as offsets; None if the text is empty."""
    lines = text.split("\n")
    if not text:
        return None
    row = max(0, min(line, len(lines)) - 1)
    before = sum(len(each) + 1 for each in lines[:row])
    start = before + max(0, min(column - 1, len(lines[row])))
    end = start
    while end < len(text) and (text[end].isalnum() or text[end] in "_."):
        end += 1
    end = max(end, min(start + 1, len(text)))
    return (start, end) if end > start else (max(0, end - 1), end)


def problem(error: ResurgenceError) -> Markup:
    """Return an error below the editor, with its place."""
    place = NOTHING
    if isinstance(error, SqlError):
        place = html(
            '<button class="quiet" data-action="place" data-line="{}">line {}, column {}</button>',
            error.line,
            error.line,
            error.column,
        )
    return html(
        '<div class="alert" role="alert" data-problem>{} {}{}</div>',
        error.message,
        place,
        html('<div class="hint">{}</div>', error.hint) if error.hint else "",
    )


def no_problem(operators: int) -> Markup:
    return html(
        '<p class="note"><span class="state good"><i></i>compiles</span> · {} operators</p>',
        operators,
    )


def preview_panel(found: PreviewedTable) -> Markup:
    """Return the rows of a preview."""
    if not found.rows:
        return html('<p class="note">No rows in this sample of the input.</p>')
    kinds = [
        all(isinstance(row[place], int | float) for row in found.rows)
        for place in range(len(found.columns))
    ]
    note = "all rows of a sample" if found.is_complete else "the first rows of a sample"
    return html(
        '<section class="panel" data-preview>{}<div class="pages"><span>{}</span></div></section>',
        rows_table(found.columns, found.rows, kinds),
        note,
    )


def settings_of(text: str) -> dict[str, str]:
    """Return settings from lines of `key = value`. Raise ConfigError for any other line."""
    found = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise ConfigError(
                f"'{line.strip()}' is not a setting", hint="Write one KEY = VALUE in each line."
            )
        found[key.strip()] = value.strip()
    return found


def settings_text(settings: dict[str, str]) -> str:
    """Return settings as lines."""
    return "\n".join(f"{key} = {value}" for key, value in settings.items())


def fates_panel(epoch: int, judged: Sequence[OperatorFate]) -> Markup:
    """Return what an edit does with the state of each operator."""
    if not epoch:
        return html('<p class="note">There is no checkpoint yet: every operator begins anew.</p>')
    loses = any(each.loses for each in judged)
    return html(
        '{}<p class="note">From the checkpoint of epoch {}, or a newer one:</p>'
        '<div class="scroll"><table class="grid"><thead><tr><th>Operator</th><th>State</th><th>Why</th></tr>'
        "</thead><tbody>{}</tbody></table></div>",
        html('<div class="alert">State would be lost; the service refuses this edit.</div>')
        if loses
        else "",
        epoch,
        html.join(
            html(
                '<tr><th scope="row">{}</th><td><span class="state {}"><i></i>{}</span></td>'
                '<td class="wrap">{}</td></tr>',
                each.operator,
                "bad" if each.loses else _TONES[each.fate],
                each.fate,
                each.reason,
            )
            for each in judged
        ),
    )
