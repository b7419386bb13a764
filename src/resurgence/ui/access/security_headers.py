"""The security headers of the console's responses; pure.

The content security policy is as strict as NiceGUI allows: its client compiles templates and runs
the code of event handlers (`unsafe-eval`), and sets styles (`unsafe-inline` for styles). Inline
scripts run only with the nonce of the response, and nothing is loaded from other hosts.
"""

from __future__ import annotations

import re

_OPENING = re.compile(rb"<script(?=[\s>])")


def policy(nonce: str, *, may_eval: bool) -> str:
    """Return the content security policy of a page."""
    scripts = f"'self' 'nonce-{nonce}'" + (" 'unsafe-eval'" if may_eval else "")
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {scripts}",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data:",
            "font-src 'self'",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        )
    )


def headers(nonce: str, *, may_eval: bool) -> list[tuple[bytes, bytes]]:
    """Return the headers of a response."""
    return [
        (b"content-security-policy", policy(nonce, may_eval=may_eval).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"same-origin"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    ]


def with_nonce(page: bytes, nonce: str) -> bytes:
    """Allow the inline scripts of a page. User data in it never contains `<`, so that it cannot
    open a script.
    """
    return _OPENING.sub(f'<script nonce="{nonce}"'.encode(), page)
