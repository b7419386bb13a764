"""A process that ends at each of its steps in turn, and another one that completes its work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

Steps = Sequence[tuple[type, str]]
"""Methods, by their class and name."""


class Crash(BaseException):
    """The process is gone."""


@contextmanager
def crashing(
    monkeypatch: pytest.MonkeyPatch, steps: Steps, step: int, *, after: bool
) -> Iterator[list[str]]:
    """End the process before or after the n-th call of one of these methods; the calls made."""
    made: list[str] = []

    def counted(owner: type, name: str) -> Callable[..., Any]:
        original = getattr(owner, name)

        def call(*arguments: Any, **named: Any) -> Any:
            made.append(name)
            if len(made) > step or (len(made) == step and not after):
                raise Crash
            result = original(*arguments, **named)
            if len(made) == step:
                raise Crash
            return result

        return call

    with monkeypatch.context() as patch:
        for owner, name in steps:
            patch.setattr(owner, name, counted(owner, name))
        yield made


def crash_at_every_step(
    monkeypatch: pytest.MonkeyPatch,
    steps: Steps,
    act: Callable[[], None],
    check: Callable[[], None],
) -> int:
    """Crash at each step in turn, and complete the act in a new process; how many steps it has."""
    for step in range(1, 50):
        for after in (False, True):
            with crashing(monkeypatch, steps, step, after=after) as made:
                try:
                    act()
                except Crash:
                    pass
                else:
                    if len(made) < step:
                        return step - 1
            act()
            check()
    raise AssertionError
