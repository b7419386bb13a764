"""Notices: what is sent, and how it reaches a real HTTP server that may be slow, broken or
unreachable.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from resurgence.control.telemetry.events import Event
from resurgence.control.telemetry.webhooks import (
    DeliveryPolicy,
    NoticeKind,
    Reception,
    Webhooks,
    judge_answer,
    judge_event,
    signature,
    wait_after,
)
from resurgence.errors import ConfigError
from resurgence.ids import JobName

JOB = JobName("rides")
SECRET = "correct horse"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
DOCS = Path(__file__).parents[4] / "docs"
QUICK = DeliveryPolicy(
    timeout=timedelta(seconds=20),
    tries=4,
    initial_backoff=timedelta(milliseconds=2),
    maximal_backoff=timedelta(milliseconds=10),
)
PATIENCE = timedelta(seconds=20)
HANG = 0
"""Instead of a status: accept the request and never answer."""
HANG_UP = -1
"""Instead of a status: close the connection without an answer."""


def event(name: str, **facts: JsonValue) -> Event:
    return {"event": name, "at": "2030-01-01T00:00:00.000+00:00", **facts}


def failure(error: str = "out of memory") -> Event:
    return event("failure", kind="task_failed", domain="internal", error=error, generation=2)


FAILURE_WHILE_STOPPING = event("failure", kind="task_failed", domain="internal", error="late")
RECOVERED = event("incident", kind="task_failed", resumed_at="2030-01-01T00:00:09.000+00:00")
GIVEN_UP = event("incident", kind="task_failed", resumed_at=None)
FAILED = event("state", **{"from": "Failing", "to": "Failed", "reason": "used up"})
STOPPED = event("state", **{"from": "Stopping", "to": "Stopped", "reason": "as asked"})


# ---------------------------------------------------------------- decisions


@pytest.mark.parametrize(
    ("events", "sent"),
    [
        ([failure()], ["failure"]),
        ([failure(), failure(), failure()], ["failure"]),
        ([failure(), failure(), RECOVERED], ["failure", "recovered"]),
        ([failure(), RECOVERED, failure()], ["failure", "recovered", "failure"]),
        ([failure(), GIVEN_UP, FAILED], ["failure", "failed"]),
        ([failure(), FAILED, failure()], ["failure", "failed", "failure"]),
        ([failure(), GIVEN_UP, STOPPED, failure()], ["failure", "failure"]),
        ([failure(), STOPPED, failure()], ["failure", "failure"]),
        ([FAILURE_WHILE_STOPPING, STOPPED], []),
        ([event("checkpoint", epoch=3), event("committed", epoch=3), STOPPED], []),
    ],
)
def test_only_failures_recoveries_and_given_up_jobs_are_posted(
    events: list[Event], sent: list[str]
) -> None:
    kinds, is_down = [], False
    for each in events:
        kind, is_down = judge_event(each, is_down=is_down)
        kinds += [kind] if kind else []
    assert kinds == [NoticeKind(each) for each in sent]


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        ((200, 201, 202, 204, 299), Reception.DELIVERED),
        ((None, 408, 429, 500, 502, 503, 504, 599), Reception.TRY_AGAIN),
        ((300, 301, 302, 307, 308, 400, 401, 403, 404, 410, 422), Reception.REFUSED),
    ],
)
def test_only_transient_failures_are_retried(
    statuses: tuple[int | None, ...], verdict: Reception
) -> None:
    assert {judge_answer(status) for status in statuses} == {verdict}


def test_the_backoff_doubles_up_to_the_maximum_until_all_attempts_are_made() -> None:
    policy = DeliveryPolicy()
    waits = [wait_after(tries, policy, 0.5) for tries in range(1, 9)]
    seconds = [each.total_seconds() if each else None for each in waits]
    assert seconds == [1, 2, 4, 8, 16, 32, 60, None]


def test_jitter_changes_the_backoff_by_up_to_a_quarter() -> None:
    policy = DeliveryPolicy()
    assert wait_after(3, policy, 0.0) == timedelta(seconds=3)
    assert wait_after(3, policy, 1.0) == timedelta(seconds=5)


def test_the_signature_is_that_of_the_instant_a_dot_and_the_body() -> None:
    # printf '1893456000.{"a":1}' | openssl dgst -sha256 -hmac 'correct horse'
    assert signature(SECRET, b'{"a":1}', NOW) == (
        "t=1893456000,v1=6c685e6da33ce81d1c3d3cece06192822df9d2772e0277994a1877b4e853f238"
    )


@pytest.mark.parametrize(
    "url",
    [
        "",
        "receiver.example/hook",
        "ftp://receiver.example/token",
        "http://",
        "http://host:token/",
        "http://host:99999/",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="webhook URL") as refused:
        Webhooks(url, None)
    assert "token" not in refused.value.message + refused.value.hint


@pytest.mark.parametrize(
    ("variable", "value"), [("ALL_PROXY", "gopher://proxy"), ("SSL_CERT_FILE", "/is/not/there")]
)
def test_an_invalid_proxy_environment_is_a_config_error(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match="cannot create the HTTP client for webhooks") as refused:
        Webhooks("https://receiver.example/hook", None)
    assert variable in refused.value.hint


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match="secret is empty"):
        Webhooks("https://receiver.example/hook", "")


# ---------------------------------------------------------------- delivery


@dataclass(frozen=True)
class Received:
    """One request, as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Receiver(ThreadingHTTPServer):
    """Answers with the next of its statuses, and with 200 when they are used up."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses: list[int] = []
        self.received: list[Received] = []
        self.hanging = threading.Event()
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook?token=hidden"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(Received(self.path, dict(self.headers.items()), body))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        if status == HANG:
            self.server.hanging.set()
            self.server.released.wait(30)
        if status in (HANG, HANG_UP):
            self.close_connection = True
            return
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", "/elsewhere")
        self.send_header("Set-Cookie", "remember=me")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()


def deliver(
    url: str,
    *events: Event | tuple[str, Event],
    policy: DeliveryPolicy = QUICK,
    deadline: timedelta = PATIENCE,
    secret: str | None = SECRET,
    before_closing: Callable[[], object] = lambda: None,
) -> Webhooks:
    """Note the events, of JOB unless another is named, and close once all is delivered."""

    async def run() -> Webhooks:
        webhooks = Webhooks(url, secret, policy=policy)
        for each in events:
            job, noted = each if isinstance(each, tuple) else (JOB, each)
            webhooks.note(JobName(job), noted)
        webhooks.start()
        await asyncio.sleep(0)
        await asyncio.to_thread(before_closing)
        await webhooks.close(deadline)
        return webhooks

    return asyncio.run(run())


def test_a_notice_says_what_happened_to_which_job(receiver: Receiver) -> None:
    deliver(receiver.url, failure())
    (got,) = receiver.received
    assert got.path == "/hook?token=hidden"
    assert got.json == {
        "id": got.headers["X-Resurgence-Delivery"],
        "at": "2030-01-01T00:00:00.000+00:00",
        "job": "rides",
        "kind": "failure",
        "facts": {
            "kind": "task_failed",
            "domain": "internal",
            "error": "out of memory",
            "generation": 2,
        },
    }
    assert got.headers["Content-Type"] == "application/json"


def test_a_receiver_that_follows_the_docs_accepts_it_and_refuses_what_was_tampered_with(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(receiver.url, failure())
    (got,) = receiver.received
    header = got.headers["X-Resurgence-Signature"]
    (snippet,) = re.findall(r"```python\n(.*?)```", (DOCS / "webhooks.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(snippet, names)
    is_genuine = names["is_genuine"]
    assert is_genuine(SECRET, header, got.body)
    assert not is_genuine("wrong horse", header, got.body)
    assert not is_genuine(SECRET, header, got.body + b" ")
    assert not is_genuine(SECRET, header.replace("t=", "t=1"), got.body)
    assert not is_genuine(SECRET, header[:-1], got.body)
    for garbage in ("", "t=1", "v1=a", "t=x,v1=a", "t,v1", "t=1,v1=ä"):
        assert not is_genuine(SECRET, garbage, got.body)
    later = time.time() + 301
    monkeypatch.setattr(time, "time", lambda: later)
    assert not is_genuine(SECRET, header, got.body)


def test_without_a_secret_there_is_no_signature(receiver: Receiver) -> None:
    deliver(receiver.url, failure(), secret=None)
    (got,) = receiver.received
    assert "X-Resurgence-Signature" not in got.headers


@pytest.mark.parametrize("status", [500, 503, 408, 429, HANG_UP])
def test_a_transient_failure_is_retried_with_the_same_id_and_body(
    receiver: Receiver, status: int
) -> None:
    receiver.statuses = [status, status]
    webhooks = deliver(receiver.url, failure())
    assert (webhooks.delivered, webhooks.dropped) == (1, 0)
    assert len(receiver.received) == 3
    assert len({got.body for got in receiver.received}) == 1
    assert {got.headers["X-Resurgence-Delivery"] for got in receiver.received} == {
        receiver.received[0].json["id"]
    }
    assert all("Cookie" not in got.headers for got in receiver.received)


def test_an_attempt_without_a_response_times_out_and_is_retried(receiver: Receiver) -> None:
    receiver.statuses = [HANG]
    webhooks = deliver(receiver.url, failure(), policy=replace(QUICK, timeout=timedelta(seconds=1)))
    assert (webhooks.delivered, webhooks.dropped) == (1, 0)
    first, second = receiver.received
    assert first.body == second.body


@pytest.mark.parametrize("status", [301, 307, 400, 404, 410])
def test_a_rejected_notice_is_not_retried_and_logged_once(
    receiver: Receiver, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.statuses = [status]
    webhooks = deliver(receiver.url, failure(), RECOVERED)
    assert [got.json["kind"] for got in receiver.received] == ["failure", "recovered"]
    assert {got.path for got in receiver.received} == {"/hook?token=hidden"}
    assert (webhooks.delivered, webhooks.dropped) == (1, 1)
    (line,) = caplog.messages
    assert f"refused it: status {status}" in line


def test_a_receiver_that_stays_broken_is_given_up_after_all_attempts(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.statuses = [500] * 4
    webhooks = deliver(receiver.url, failure(), RECOVERED)
    assert [got.json["kind"] for got in receiver.received] == ["failure"] * 4 + ["recovered"]
    assert (webhooks.delivered, webhooks.dropped) == (1, 1)
    (line,) = caplog.messages
    assert "did not accept it in 4 attempts: status 500" in line


def test_an_unreachable_receiver_is_given_up_after_all_attempts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as taken:
        # Bound and not listening, so that no other process gets the port and connections are refused.
        taken.bind(("127.0.0.1", 0))
        webhooks = deliver(f"http://127.0.0.1:{taken.getsockname()[1]}/hook", failure())
    assert (webhooks.delivered, webhooks.dropped) == (0, 1)
    assert "did not accept it in 4 attempts" in caplog.text


def test_the_order_of_the_notices_of_a_job_is_kept_while_attempts_fail(receiver: Receiver) -> None:
    receiver.statuses = [500, 200, 503, 429, 200, 500]
    deliver(
        receiver.url, failure("first"), ("other", failure("theirs")), RECOVERED, failure("next")
    )
    reported: list[str] = []
    for got in receiver.received:
        if got.json["id"] not in reported:
            reported.append(got.json["id"])
    kinds = {got.json["id"]: (got.json["job"], got.json["kind"]) for got in receiver.received}
    assert [kinds[each] for each in reported] == [
        ("rides", "failure"),
        ("other", "failure"),
        ("rides", "recovered"),
        ("rides", "failure"),
    ]
    assert len(receiver.received) == 4 + 4


def test_failures_are_tracked_per_job(receiver: Receiver) -> None:
    deliver(receiver.url, ("a", failure()), ("b", failure()), ("a", failure()), ("b", RECOVERED))
    assert [(got.json["job"], got.json["kind"]) for got in receiver.received] == [
        ("a", "failure"),
        ("b", "failure"),
        ("b", "recovered"),
    ]


def test_each_notice_has_a_unique_id(receiver: Receiver) -> None:
    deliver(receiver.url, failure(), FAILED, failure(), FAILED)
    assert len({got.json["id"] for got in receiver.received}) == 4


def test_a_full_queue_drops_the_oldest_and_says_so(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    policy = replace(QUICK, capacity=3)
    webhooks = deliver(
        receiver.url, *((f"job-{number}", failure()) for number in range(5)), policy=policy
    )
    assert [got.json["job"] for got in receiver.received] == ["job-2", "job-3", "job-4"]
    assert (webhooks.delivered, webhooks.dropped) == (3, 2)
    assert [re.findall(r"job-\d", line) for line in caplog.messages] == [["job-0"], ["job-1"]]


def test_a_hung_receiver_does_not_block_event_listeners(receiver: Receiver) -> None:
    receiver.statuses = [HANG]
    policy = replace(QUICK, capacity=10)

    async def run() -> tuple[float, int]:
        webhooks = Webhooks(receiver.url, SECRET, policy=policy)
        webhooks.start()
        webhooks.note(JOB, failure())
        assert await asyncio.to_thread(receiver.hanging.wait, 20)
        began = time.monotonic()
        for _ in range(500):
            webhooks.note(JOB, FAILED)
            webhooks.note(JOB, failure())
        took = time.monotonic() - began
        await webhooks.close(timedelta(0))
        return took, webhooks.dropped

    took, dropped = asyncio.run(run())
    assert took < 10
    assert dropped == 1001
    assert len(receiver.received) == 1


def test_close_waits_no_longer_than_its_deadline_and_drops_the_rest(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.statuses = [200, HANG]
    began = time.monotonic()
    webhooks = deliver(
        receiver.url,
        failure(),
        RECOVERED,
        failure(),
        before_closing=lambda: receiver.hanging.wait(20),
        deadline=timedelta(milliseconds=50),
    )
    assert time.monotonic() - began < 10
    assert (webhooks.delivered, webhooks.dropped) == (1, 2)
    assert [line.split(": ")[-1] for line in caplog.messages] == [
        "the controller is shutting down"
    ] * 2


def test_events_that_come_while_it_runs_are_delivered_without_a_close(receiver: Receiver) -> None:
    async def run() -> None:
        webhooks = Webhooks(receiver.url, SECRET, policy=QUICK)
        webhooks.start()
        for number, each in enumerate((failure(), RECOVERED), 1):
            webhooks.note(JOB, each)
            async with asyncio.timeout(20):
                while webhooks.delivered < number:
                    await asyncio.sleep(0.005)
        await webhooks.close(PATIENCE)

    asyncio.run(run())
    assert [got.json["kind"] for got in receiver.received] == ["failure", "recovered"]


def test_the_token_in_the_url_is_never_logged(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.statuses = [200, 400, 500, 500, 500, 500]
    with caplog.at_level(logging.INFO):
        deliver(receiver.url, failure(), RECOVERED, failure())
    assert len(caplog.messages) == 2
    assert "hidden" not in caplog.text


@contextmanager
def raw_receiver(first: bytes, again: bytes, pause: float) -> Iterator[str]:
    """The URL of a server that sends the one, then the other for as long as someone listens."""

    def answer() -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.sendall(first)
            while not left.wait(pause):
                connection.sendall(again)

    left = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        left.set()
        thread.join()


def test_the_body_of_an_answer_is_not_read() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with raw_receiver(head, b"10000\r\n" + b"x" * 65536 + b"\r\n", pause=0) as url:
        assert deliver(url, failure()).delivered == 1


@pytest.mark.parametrize(
    ("first", "again"),
    [(b"HTTP/1.1 200 OK\r\n", b"X-More: to come\r\n"), (b"SSH-2.0-hello\r\n", b"\r\n")],
)
def test_a_response_that_never_completes_is_a_timeout(first: bytes, again: bytes) -> None:
    policy = replace(QUICK, timeout=timedelta(milliseconds=300), tries=1)
    began = time.monotonic()
    with raw_receiver(first, again, pause=0.02) as url:
        assert deliver(url, failure(), policy=policy).dropped == 1
    assert time.monotonic() - began < 10
