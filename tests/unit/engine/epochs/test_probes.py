"""The deadline of probes."""

from __future__ import annotations

import time
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from resurgence.engine.epochs import probes
from resurgence.engine.epochs.pipeline import Pipeline
from resurgence.engine.epochs.probes import Deadline, Probes
from resurgence.ids import OperatorId
from resurgence.state.records import InputRange

SOURCE = OperatorId("source-in")


def test_probes_are_interrupted_again_and_again_after_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probes, "_INTERRUPT_SECONDS", 0.01)
    interrupts: list[str] = []
    tags: set[str] = set()
    spark = SimpleNamespace(
        addTag=tags.add, removeTag=tags.remove, interruptTag=lambda tag: interrupts.append(tag)
    )
    pipeline = cast(Pipeline, SimpleNamespace(spark=spark))
    ends = time.monotonic() + 10
    with Probes(pipeline, 0).within(timedelta(milliseconds=1)) as deadline:
        while len(interrupts) < 3 and time.monotonic() < ends:
            time.sleep(0.005)
    assert not deadline.has_time()
    assert len(interrupts) >= 3
    assert not tags


def test_no_step_is_run_after_the_deadline() -> None:
    rows = SimpleNamespace()
    step = SimpleNamespace(id=SOURCE, probe=lambda _probe: [rows])
    pipeline = cast(Pipeline, SimpleNamespace(source_operators={}, operators={SOURCE: step}))
    piece = InputRange(start={}, end={}, rows=1)
    late = Deadline(time.monotonic() - 1)
    assert Probes(pipeline, 0).failure_of(SOURCE, piece, late) is None
    # In time, the step is run, and fails.
    soon = Deadline(time.monotonic() + 10)
    assert Probes(pipeline, 0).failure_of(SOURCE, piece, soon) is not None
