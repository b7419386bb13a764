"""The header of every page, and errors in the place of content; pure."""

from __future__ import annotations

from resurgence.ui.access.visitor import Visitor
from resurgence.ui.views.markup import NOTHING, Markup, html

_ENTRIES = (
    ("/", "Jobs"),
    ("/incidents", "Incidents"),
    ("/events", "Events"),
    ("/workers", "Workers"),
    ("/new", "New job"),
)
_LOGO = html.trusted(
    '<svg viewBox="0 0 32 32" aria-hidden="true"><path d="M6 23c0-8 4.5-13 10-13s10 5 10 13" '
    'fill="none" stroke="currentColor" stroke-width="3" stroke-linecap="round"/>'
    '<circle cx="16" cy="22" r="3.6" fill="currentColor"/></svg>'
)
_THEME_ICON = html.trusted(
    '<svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8" '
    'aria-hidden="true"><circle cx="12" cy="12" r="8.5"/><path d="M12 3.5v17a8.5 8.5 0 0 0 0-17z" '
    'fill="currentColor" stroke="none"/></svg>'
)
_NEXT_THEME = {"auto": "dark", "dark": "light", "light": "auto"}


def header(at: str, visitor: Visitor, theme: str, *, may_create: bool) -> Markup:
    """Return the header. `at` is the path of the entry that is current."""
    links = html.join(
        html(
            '<a href="{}"{}>{}</a>',
            path,
            html.trusted(' aria-current="page"') if path == at else NOTHING,
            name,
        )
        for path, name in _ENTRIES
        if may_create or path != "/new"
    )
    following = _NEXT_THEME.get(theme, "dark")
    who = NOTHING
    if visitor.key:
        role = NOTHING if visitor.may_write else html('<span class="tag">read only</span>')
        who = html(
            '<span class="name">{}</span>{}<form method="post" action="/logout">'
            '<button class="quiet" type="submit">Log out</button></form>',
            visitor.key,
            role,
        )
    return html(
        '<a class="skip" href="#content">Skip to content</a><div class="in">'
        '<a class="brand" href="/">{}Resurgence</a><nav aria-label="Main">{}</nav>'
        '<div class="who">{}<button class="icon-button" data-action="theme" data-theme="{}" '
        'title="Theme: {}" aria-label="Theme: {}; switch to {}">{}</button></div></div>',
        _LOGO,
        links,
        who,
        following,
        theme,
        theme,
        following,
        _THEME_ICON,
    )


def error_alert(message: str, hint: str = "", kind: str = "") -> Markup:
    """Return an error with its hint."""
    return html(
        '<div class="alert {}" role="alert">{}{}</div>',
        kind,
        message,
        html('<div class="hint">{}</div>', hint) if hint else "",
    )
