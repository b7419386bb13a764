"""Interpretation of the exit status of a process."""

from __future__ import annotations

import signal

_CRASH_SIGNALS = frozenset(
    {
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSEGV,
        signal.SIGSYS,
        signal.SIGTRAP,
    }
)
"""Signals that a process causes itself."""
_TERMINATION_SIGNALS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
_SHELL_OFFSET = 128
"""A JVM that handles a termination signal exits with this offset plus the signal's number."""


def killed_from_outside(status: int | None) -> bool:
    """Return whether a person, the out-of-memory killer or a supervisor ended the process. A
    process that crashed by itself may crash again for the same reason; a kill does not predict
    another one.
    """
    if status is None:
        return False
    if status < 0:
        return -status not in _CRASH_SIGNALS
    return status - _SHELL_OFFSET in _TERMINATION_SIGNALS
