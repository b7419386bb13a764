"""What the exit status of a process says about its death."""

from __future__ import annotations

import signal

_OWN_CRASHES = frozenset(
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
"""Signals that a process brings upon itself."""
_ASKED_TO_END = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
_SHELL_OFFSET = 128
"""A JVM that is asked to end exits with this much more than the signal's number."""


def killed_from_outside(status: int | None) -> bool:
    """Whether someone else ended the process: a person, the out-of-memory killer, a supervisor of
    the machine. A process that crashed by itself may do so again for the same reason; one that was
    killed says nothing about the next.
    """
    if status is None:
        return False
    if status < 0:
        return -status not in _OWN_CRASHES
    return status - _SHELL_OFFSET in _ASKED_TO_END
