"""Messages and logs of a worker contain no secrets of its tables."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import cast

import pytest
from pydantic import ValidationError

from resurgence.config import settings_from
from resurgence.errors import SinkError
from resurgence.graph.model import Graph
from resurgence.graph.specs.sink import SinkSpec
from resurgence.ids import Generation, JobIdentity, JobName, OperatorId, WorkerId
from resurgence.state.load_plan import LoadPlan
from resurgence.worker.connection import ControlConnection
from resurgence.worker.main import ConcealingFormatter, Worker
from resurgence.worker.messages import TO_WORKER, Message, StartExecution, TaskFailedEvent, encode

ORDER = StartExecution(
    job=JobName("rides"),
    state_url="file:///state",
    graph=Graph(
        operators=(
            SinkSpec(
                id=OperatorId("sink-o"),
                input=OperatorId("source-t"),
                table="o",
                connector="vault",
                options={"password": "${env:RESURGENCE_PW}", "token": "literal"},
            ),
        )
    ),
    plan=LoadPlan(job=JobIdentity("j"), generation=Generation(1), parallelism=2),
    settings=settings_from({}),
    functions_file=None,
    token="t",
    patience=timedelta(seconds=30),
)


class RecordingConnection:
    """Gives one order and keeps what is said."""

    def __init__(self) -> None:
        self.said: list[Message] = []

    def send(self, message: Message) -> None:
        self.said.append(message)

    def listen(self) -> None: ...

    def beat(self, interval: timedelta, heartbeat: object) -> None: ...

    def next_order(self, deadline: timedelta | None) -> StartExecution:
        return ORDER


def test_a_failure_is_reported_and_logged_without_secrets(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        try:
            raise OSError("hunter2 is refused")
        except OSError as error:
            raise SinkError("no login with hunter2", hint="literal is wrong") from error

    monkeypatch.setenv("RESURGENCE_PW", "hunter2")
    monkeypatch.setattr(Worker, "_execute", fail)
    simulated, log_format = RecordingConnection(), ConcealingFormatter("%(message)s")
    connection = cast(ControlConnection, simulated)
    with caplog.at_level(logging.ERROR):
        assert Worker(connection, WorkerId("w"), Generation(1), log_format).run() == 1
    said = simulated.said[-1]
    assert isinstance(said, TaskFailedEvent)
    assert said.error == "no login with ${env:RESURGENCE_PW}"
    assert said.hint == "*** is wrong"
    logged = "\n".join(log_format.format(each) for each in caplog.records)
    assert "OSError: ${env:RESURGENCE_PW} is refused" in logged
    assert "hunter2" not in logged


def test_the_order_holds_references_and_one_that_does_not_fit_is_not_quoted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RESURGENCE_PW", "hunter2")
    line = encode(ORDER)
    assert b"${env:RESURGENCE_PW}" in line
    assert b"hunter2" not in line
    with pytest.raises(ValidationError) as caught:
        TO_WORKER.validate_json(line.replace(b'"literal"', b'["literal"]'))
    assert "literal" not in str(caught.value)
