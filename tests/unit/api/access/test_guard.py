"""Authorisation as a function of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.unit.api.simulated_service import NOW

from resurgence.api.access.api_keys import digest, matching_key, new_key
from resurgence.api.access.guard import Guard, RequestFacts, is_loopback
from resurgence.api.error_answer import Refusal
from resurgence.control.store.metadata import ApiKey, KeyRole
from resurgence.errors import ConfigError

# Always the same, for they are in the names of tests.
WRITE_TEXT, READ_TEXT = f"rsg_writer_{'w' * 43}", f"rsg_reader_{'r' * 43}"
WRITER = ApiKey("writer", KeyRole.WRITE, digest(WRITE_TEXT), NOW)
READER = ApiKey("reader", KeyRole.READ, digest(READ_TEXT), NOW)
KEYS = (READER, WRITER)
REQUEST = RequestFacts("GET", "/v1/jobs", "127.0.0.1", "127.0.0.1:7070", None, None)


def refused(
    guard: Guard, request: RequestFacts, keys: Sequence[ApiKey] = KEYS, now: float = 0
) -> Refusal:
    with pytest.raises(Refusal) as caught:
        guard.admit(request, keys, now)
    return caught.value


def bearing(text: str, request: RequestFacts = REQUEST) -> RequestFacts:
    return replace(request, authorization=f"Bearer {text}")


def test_a_key_is_shown_once_and_stored_as_a_digest() -> None:
    text, key = new_key("writer", KeyRole.WRITE, NOW)
    assert text.startswith("rsg_writer_")
    assert len(text) > len("rsg_writer_") + 40
    assert key.digest == digest(text)
    assert text not in repr(key)
    assert new_key("writer", KeyRole.WRITE, NOW)[0] != text


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a" * 41, "ä"])
def test_names_of_keys_are_plain(name: str) -> None:
    with pytest.raises(ConfigError):
        new_key(name, KeyRole.READ, NOW)


def test_only_the_whole_key_matches() -> None:
    assert matching_key(WRITE_TEXT, KEYS) == WRITER
    for text in ("", WRITE_TEXT[:-1], WRITE_TEXT + "x", WRITER.digest, "rsg_writer_"):
        assert matching_key(text, KEYS) is None


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.1", False),
        ("example.org", False),
    ],
)
def test_loopback_addresses_are_recognised(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_on_loopback_no_key_is_required_until_one_exists() -> None:
    guard = Guard()
    guard.admit(REQUEST, (), 0)
    assert refused(guard, REQUEST).status == 401


def test_other_addresses_require_a_key_even_if_none_exists() -> None:
    guard = Guard("0.0.0.0")
    refusal = refused(guard, REQUEST, ())
    assert refusal.status == 401
    assert refusal.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer x", "Basic abc", f"Token {WRITE_TEXT}", WRITE_TEXT],
)
def test_a_malformed_key_is_refused(authorization: str | None) -> None:
    assert refused(Guard(), replace(REQUEST, authorization=authorization)).status == 401


@pytest.mark.parametrize(
    ("method", "text", "status"),
    [
        ("GET", READ_TEXT, None),
        ("POST", READ_TEXT, 403),
        ("PUT", READ_TEXT, 403),
        ("DELETE", READ_TEXT, 403),
        ("GET", WRITE_TEXT, None),
        ("POST", WRITE_TEXT, None),
        ("DELETE", WRITE_TEXT, None),
    ],
)
def test_readers_may_read_and_writers_may_do_everything(
    method: str, text: str, status: int | None
) -> None:
    request = bearing(text, replace(REQUEST, method=method))
    if status is None:
        Guard().admit(request, KEYS, 0)
    else:
        assert refused(Guard(), request).status == status


def test_a_reader_may_query_dead_letters() -> None:
    query = bearing(READ_TEXT, replace(REQUEST, method="POST"))
    Guard().admit(replace(query, path="/v1/jobs/rides/dead-letters/query"), KEYS, 0)
    for method, path in (
        ("PUT", "/v1/jobs/rides/dead-letters/query"),
        ("POST", "/v1/jobs/rides/dead-letters/replay"),
        ("POST", "/v1/jobs/rides/dead-letters/query/"),
        ("POST", "/v1/jobs/rides/stop/dead-letters/query"),
        ("POST", "/v1/jobs/dead-letters/query"),
    ):
        assert refused(Guard(), replace(query, method=method, path=path)).status == 403


@pytest.mark.parametrize("path", ["/health", "/ready", "/docs", "/openapi.json"])
def test_some_paths_take_no_key(path: str) -> None:
    Guard("0.0.0.0").admit(replace(REQUEST, path=path), KEYS, 0)
    assert refused(Guard("0.0.0.0"), replace(REQUEST, path=path + "/")).status == 401


@pytest.mark.parametrize(
    ("host", "is_let_in"),
    [
        ("localhost", True),
        ("localhost:7070", True),
        ("LOCALHOST:1", True),
        ("127.0.0.1:9", True),
        ("[::1]:7070", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example:7070", False),
        ("evil@localhost.example", False),
        ("[", False),
        ("", False),
        (None, False),
    ],
)
def test_on_loopback_only_names_of_this_machine_are_answered(
    host: str | None, is_let_in: bool
) -> None:
    request = replace(REQUEST, host=host)
    if is_let_in:
        Guard().admit(request, (), 0)
    else:
        assert refused(Guard(), request, ()).detail.code == "auth.host"
        Guard("0.0.0.0").admit(bearing(WRITE_TEXT, request), KEYS, 0)


@pytest.mark.parametrize(
    ("origin", "is_let_in"),
    [
        (None, True),
        ("http://127.0.0.1:7070", True),
        ("http://127.0.0.1:8080", False),
        ("https://evil.example", False),
        ("null", False),
    ],
)
def test_pages_of_another_origin_are_refused(origin: str | None, is_let_in: bool) -> None:
    request = replace(REQUEST, method="POST", origin=origin)
    if is_let_in:
        Guard().admit(request, (), 0)
    else:
        assert refused(Guard(), request, ()).detail.code == "auth.origin"


def test_failed_logins_are_bounded_and_do_not_lock_out_a_right_key() -> None:
    guard = Guard(failed_logins=2)
    statuses = [refused(guard, bearing("wrong")).status for _ in range(4)]
    assert statuses == [401, 401, 429, 429]
    assert refused(guard, bearing("wrong"), now=59).headers["Retry-After"] == "1"
    guard.admit(bearing(WRITE_TEXT), KEYS, 0)
    assert refused(guard, replace(bearing("wrong"), address="10.0.0.1")).status == 401
    assert refused(guard, bearing("wrong"), now=60).status == 401


def test_an_ipv6_network_is_one_client() -> None:
    guard = Guard("::", failed_logins=1)
    request = replace(bearing("wrong"), address="2001:db8::1")
    assert refused(guard, request).status == 401
    assert refused(guard, replace(request, address="2001:db8::2")).status == 429
    assert refused(guard, replace(request, address="2001:db8:0:1::1")).status == 401
