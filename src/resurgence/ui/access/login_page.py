"""The login page: plain HTML, which works before anything else is loaded."""

from __future__ import annotations

from resurgence.ui.views.markup import html

_STYLE = """
:root{color-scheme:light dark;--bg:#f6f7f8;--panel:#fff;--line:#dfe2e6;--text:#16191d;--muted:#626a73;
--bad:#b3261e;--ink:#16191d;--on-ink:#fff}
@media (prefers-color-scheme:dark){:root{--bg:#0f1113;--panel:#16191c;--line:#2a2f35;--text:#e8eaed;
--muted:#98a1ab;--bad:#ff8a80;--ink:#e8eaed;--on-ink:#111}}
*{box-sizing:border-box}body{margin:0;min-height:100vh;display:grid;place-items:center;
background:var(--bg);color:var(--text);font:15px/1.5 Roboto,system-ui,sans-serif}
main{width:min(22rem,calc(100vw - 2rem));background:var(--panel);border:1px solid var(--line);
border-radius:10px;padding:1.75rem}
h1{font-size:1.15rem;margin:0 0 .25rem;font-weight:600}p{margin:0 0 1.25rem;color:var(--muted);font-size:.85rem}
label{display:block;font-size:.8rem;font-weight:500;margin-bottom:.35rem}
input{width:100%;font:inherit;padding:.5rem .65rem;color:inherit;background:var(--bg);
border:1px solid var(--line);border-radius:6px}
input:focus-visible,button:focus-visible{outline:2px solid #3b82f6;outline-offset:1px}
button{width:100%;margin-top:1rem;padding:.55rem;font:inherit;font-weight:500;border:0;border-radius:6px;
background:var(--ink);color:var(--on-ink);cursor:pointer}
[role=alert]{color:var(--bad);margin:.75rem 0 0}code{font-size:.92em}
"""


def login_page(target: str, error: str = "") -> str:
    """Return the page. `target` is where a login leads to."""
    alert = html('<p role="alert">{}</p>', error) if error else ""
    return html(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Log in · Resurgence</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,"><style>{style}</style></head><body><main>'
        "<h1>Resurgence</h1><p>Log in with an API key of this service.</p>"
        '<form method="post" action="/login"><input type="hidden" name="next" value="{target}">'
        '<label for="key">API key</label><input id="key" name="key" type="password" required '
        'autofocus autocomplete="current-password" spellcheck="false">'
        '{alert}<button type="submit">Log in</button></form></main></body></html>',
        style=_STYLE_MARKUP,
        target=target,
        alert=alert,
    )


def arriving_page(target: str) -> str:
    """Return a page that opens `target` again. A link on another site is followed without the
    cookie of the session, a link of our own is not.
    """
    return html(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Resurgence</title>'
        '<meta http-equiv="refresh" content="0;url={}"></head><body></body></html>',
        target,
    )


_STYLE_MARKUP = html("{}", html.trusted(_STYLE))
