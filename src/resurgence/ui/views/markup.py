"""HTML from values: every value is escaped, unless it is markup already."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


class _Html:
    """Fills values into a template of markup: `html("<b>{}</b>", name)`."""

    def __call__(self, template: str, *values: object, **named: object) -> Markup:
        return Markup(
            template.format(
                *map(_shown, values), **{key: _shown(each) for key, each in named.items()}
            )
        )

    def join(self, parts: Iterable[Markup], between: str = "") -> Markup:
        """Return parts one after the other."""
        return Markup(between.join(parts))

    def trusted(self, text: str) -> Markup:
        """Return text of our own as markup."""
        return Markup(text)


def _shown(value: object) -> str:
    if isinstance(value, Markup):
        return value
    return "" if value is None else escape(str(value))


html = _Html()
NOTHING = Markup("")
