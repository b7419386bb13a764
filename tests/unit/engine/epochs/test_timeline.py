"""What the driver works on during an epoch."""

from __future__ import annotations

import itertools

import pytest

from resurgence.engine.epochs.timeline import Span, Timeline, Work
from resurgence.ids import OperatorId

WINDOW = OperatorId("window-1")


def ticking() -> Timeline:
    """A timeline whose clock advances by a second whenever it is read; it began at 1000."""
    ticks = itertools.count(5)
    return Timeline(lambda: float(next(ticks)), lambda: 1000.0)


def test_nested_work_is_counted_once_and_leaves_no_gap() -> None:
    timeline = ticking()
    with timeline.within(Work.OPERATOR, WINDOW), timeline.within(Work.MESSAGES):
        pass
    timeline.end()
    assert timeline.spans == [
        Span(Work.OTHER, None, 1000, 1001),
        Span(Work.OPERATOR, WINDOW, 1001, 1002),
        Span(Work.MESSAGES, None, 1002, 1003),
        Span(Work.OPERATOR, WINDOW, 1003, 1004),
        Span(Work.OTHER, None, 1004, 1005),
    ]
    assert timeline.seconds() == 5
    assert timeline.seconds(Work.OPERATOR) == 2


def test_work_that_fails_is_counted_too_and_ends() -> None:
    timeline = ticking()
    with pytest.raises(ValueError, match="refused"), timeline.within(Work.SINKS):
        raise ValueError("refused")
    timeline.end()
    assert [each.work for each in timeline.spans] == [Work.OTHER, Work.SINKS, Work.OTHER]


def test_the_checkpoint_share_is_that_of_state_compaction_storage_and_sinks() -> None:
    timeline = ticking()
    for work in Work:
        with timeline.within(work):
            pass
    assert timeline.seconds() == 16
    assert timeline.checkpoint_share() == 4 / 16
