"""The end of a log; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from resurgence.ui.views.markup import Markup, html

MOST_LINES = 400
_BAD = re.compile(r"\b(ERROR|FATAL|CRITICAL|Traceback)\b")
_WARN = re.compile(r"\bWARN(ING)?\b")


def log_view(lines: Sequence[str], text: str) -> Markup:
    """Return the last lines of a log that contain a text."""
    words = text.lower().split()
    chosen = [each for each in lines if all(word in each.lower() for word in words)]
    if not chosen:
        return html('<div class="panel"><p class="empty">No lines.</p></div>')
    return html(
        '<pre class="log" data-follow tabindex="0" aria-label="Log">{}</pre>',
        html.join(_line(each) for each in chosen[-MOST_LINES:]),
    )


def _line(text: str) -> Markup:
    if _BAD.search(text):
        return html('<span class="bad">{}\n</span>', text)
    return html('<span class="{}">{}\n</span>', "warn" if _WARN.search(text) else "", text)
