"""Access control of a real server: keys, limits, one shape of errors."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from tests.unit.api.simulated_service import SQL, KeyBox, SimulatedController, served, simulated

from resurgence.api.access.gate import MAX_BODY_BYTES
from resurgence.api.access.guard import Guard
from resurgence.control.store.metadata import KeyRole
from resurgence.errors import StorageError

SHAPE = {"code", "message", "hint", "domain"}


def code_of(answer: httpx.Response) -> str:
    error = answer.json()["error"]
    assert set(error) - {"line", "column"} == SHAPE
    assert answer.headers["content-type"] == "application/json"
    assert "Traceback" not in answer.text
    return str(error["code"])


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "http.not_found"),
        ("PATCH", "/v1/jobs", 405, "http.method"),
        ("GET", "/v1/jobs/none", 404, "job.unknown"),
        ("GET", "/v1/jobs/.hidden", 422, "request.invalid"),
        ("GET", "/v1/jobs/none/events?after=x", 422, "request.invalid"),
        ("POST", "/v1/jobs", 422, "request.invalid"),
    ],
)
def test_every_error_has_one_shape(
    http: httpx.Client, method: str, path: str, status: int, code: str
) -> None:
    answer = http.request(method, path)
    assert (answer.status_code, code_of(answer)) == (status, code)


def test_responses_are_neither_cached_nor_sniffed(http: httpx.Client) -> None:
    for path in ("/health", "/nowhere", "/v1/jobs"):
        headers = http.get(path).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_an_unexpected_error_is_logged_and_not_disclosed(
    http: httpx.Client, controller: SimulatedController, caplog: pytest.LogCaptureFixture
) -> None:
    controller.failing = RuntimeError("inner matters")
    with caplog.at_level(logging.ERROR):
        answer = http.get("/v1/jobs")
    assert (answer.status_code, code_of(answer)) == (500, "internal")
    assert "inner matters" not in answer.text
    assert "inner matters" in caplog.text


def test_a_storage_failure_is_a_503_with_retry_after(
    http: httpx.Client, controller: SimulatedController
) -> None:
    controller.failing = StorageError("the database fails", hint="wait")
    answer = http.get("/v1/jobs")
    assert (answer.status_code, code_of(answer)) == (503, "storage")
    assert int(answer.headers["retry-after"]) > 0


def test_a_service_that_cannot_write_is_alive_and_not_ready(
    http: httpx.Client, controller: SimulatedController
) -> None:
    assert _until(lambda: http.get("/ready").status_code, 200) == 200
    controller.failing = StorageError("the database fails", hint="wait")
    assert _until(lambda: http.get("/ready").status_code, 503) == 503
    assert http.get("/ready").json()["error"]["message"] == "the database fails"
    assert http.get("/health").status_code == 200
    controller.failing = None
    assert _until(lambda: http.get("/ready").status_code, 200) == 200


def test_a_new_key_is_accepted_soon(controller: SimulatedController) -> None:
    keys = KeyBox([])
    with served(simulated(controller), keys) as url, httpx.Client(base_url=url) as http:
        assert http.get("/v1/jobs").status_code == 200
        text = keys.add("reader", KeyRole.READ)
        assert _until(lambda: http.get("/v1/jobs").status_code, 401) == 401
        bearing = {"Authorization": f"Bearer {text}"}
        assert http.get("/v1/jobs", headers=bearing).status_code == 200
        refused = http.post("/v1/jobs/x/start", headers=bearing)
        assert (refused.status_code, code_of(refused)) == (403, "auth.forbidden")
        unknown = http.get("/v1/jobs", headers={"Authorization": "Bearer rsg_reader_no"})
        assert (unknown.status_code, code_of(unknown)) == (401, "auth.required")
        assert unknown.headers["www-authenticate"].startswith("Bearer")
        assert http.get("/health").status_code == 200


def test_keys_are_accepted_while_the_database_is_unavailable(
    controller: SimulatedController,
) -> None:
    box = KeyBox([])
    text = box.add("reader", KeyRole.READ)
    bearing = {"Authorization": f"Bearer {text}"}
    with served(simulated(controller), box) as url, httpx.Client(base_url=url) as http:
        assert http.get("/v1/jobs", headers=bearing).status_code == 200
        box.failing = StorageError("away")
        time.sleep(2.1)  # the keys that were read have become old
        assert http.get("/v1/jobs", headers=bearing).status_code == 200
        assert http.get("/v1/jobs").status_code == 401


def test_access_is_denied_if_keys_were_never_read(controller: SimulatedController) -> None:
    box = KeyBox([], failing=StorageError("away"))
    with served(simulated(controller), box) as url:
        answer = httpx.get(f"{url}/v1/jobs", trust_env=False, timeout=30)
        assert (answer.status_code, code_of(answer)) == (503, "storage")


def test_other_hosts_and_origins_are_refused(http: httpx.Client) -> None:
    host = http.get("/v1/jobs", headers={"Host": "evil.example"})
    assert (host.status_code, code_of(host)) == (403, "auth.host")
    origin = http.post("/v1/jobs/x/start", headers={"Origin": "http://evil.example"})
    assert (origin.status_code, code_of(origin)) == (403, "auth.origin")


def test_a_browser_form_is_refused(http: httpx.Client) -> None:
    body = f'{{"name": "x", "sql": "{SQL.splitlines()[1]}"}}'
    answer = http.post("/v1/jobs", content=body, headers={"Content-Type": "text/plain"})
    assert (answer.status_code, code_of(answer)) == (422, "request.invalid")


def test_a_body_that_is_too_large_is_refused_with_and_without_a_length(http: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 100_000 + 1):
            yield b" " * 100_000

    whole = http.post("/v1/jobs", content=b" " * (MAX_BODY_BYTES + 1))
    assert (whole.status_code, code_of(whole)) == (413, "limit.size")
    chunked = http.post("/v1/jobs", content=chunks())
    assert (chunked.status_code, code_of(chunked)) == (413, "limit.size")


def test_a_body_is_refused_by_its_declared_length(url: str) -> None:
    where = urlsplit(url)
    with socket.create_connection((where.hostname or "", where.port or 0), 10) as raw:
        raw.sendall(
            b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n"
        )
        assert b" 413 " in raw.recv(100)


def test_texts_are_bounded(http: httpx.Client) -> None:
    answer = http.post("/v1/jobs", json={"name": "x", "sql": "x" * 1_000_001})
    assert (answer.status_code, code_of(answer)) == (422, "request.invalid")
    settings = {f"pipeline.k{number}": "1" for number in range(201)}
    answer = http.post("/v1/jobs", json={"name": "x", "sql": SQL, "settings": settings})
    assert answer.status_code == 422
    answer = http.post("/v1/jobs", json={"name": "x", "sql": SQL, "more": 1})
    assert answer.status_code == 422
    answer = http.post("/v1/jobs", json={"name": "x", "sql": SQL + "\0"})
    assert answer.status_code == 422


def test_failed_logins_are_throttled(controller: SimulatedController) -> None:
    box = KeyBox([])
    text = box.add("writer", KeyRole.WRITE)
    guard = Guard(failed_logins=2)
    with served(simulated(controller), box, guard) as url, httpx.Client(base_url=url) as http:
        assert [http.get("/v1/jobs").status_code for _ in range(3)] == [401, 401, 429]
        right = http.get("/v1/jobs", headers={"Authorization": f"Bearer {text}"})
        assert right.status_code == 200


def _until(look: Callable[[], object], wanted: object) -> object:
    """Looks again for a few seconds: keys are read anew every two."""
    deadline = time.monotonic() + 10
    while (found := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return found
