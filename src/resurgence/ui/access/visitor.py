"""Who looks at a page, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass

from resurgence.errors import UserError
from resurgence.ui.access.sessions import Session


class ReadOnly(UserError):
    """The key of the session may only read."""

    code = "auth.forbidden"


class SessionEnded(UserError):
    """The session has ended."""

    code = "auth.required"


@dataclass(frozen=True)
class Visitor:
    """The user of a page. Without API keys everybody on this machine may do everything."""

    session: Session | None
    key: str
    """The name of the key; empty without keys."""
    may_write: bool

    def require_write(self) -> None:
        if not self.may_write:
            raise ReadOnly(
                f"key '{self.key}' may only read", hint="Log in with a key of the role write."
            )
