"""The cookies of sessions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from resurgence.api.access.api_keys import new_key
from resurgence.control.store.metadata import KeyRole
from resurgence.ui.access.sessions import LIFETIME, SessionSigner, key_of

NOW = datetime(2030, 1, 1, tzinfo=UTC)
_, KEY = new_key("ops", KeyRole.WRITE, NOW)
SIGNER = SessionSigner(b"a secret")


def test_a_cookie_refers_to_its_key() -> None:
    session = SIGNER.session_of(SIGNER.cookie_for(KEY, NOW), NOW)
    assert key_of(session, [KEY]) == KEY


def test_a_cookie_contains_neither_the_key_nor_its_digest() -> None:
    text, key = new_key("ops", KeyRole.WRITE, NOW)
    cookie = SIGNER.cookie_for(key, NOW)
    assert text not in cookie
    assert key.digest not in cookie


def test_a_session_ends_with_its_key() -> None:
    session = SIGNER.session_of(SIGNER.cookie_for(KEY, NOW), NOW)
    assert key_of(session, []) is None


def test_a_new_key_of_the_same_name_does_not_continue_a_session() -> None:
    session = SIGNER.session_of(SIGNER.cookie_for(KEY, NOW), NOW)
    _, other = new_key("ops", KeyRole.WRITE, NOW)
    assert key_of(session, [other]) is None


def test_a_session_has_the_role_that_its_key_has_now() -> None:
    session = SIGNER.session_of(SIGNER.cookie_for(KEY, NOW), NOW)
    found = key_of(session, [replace(KEY, role=KeyRole.READ)])
    assert found is not None
    assert found.role is KeyRole.READ


def test_a_session_expires() -> None:
    cookie = SIGNER.cookie_for(KEY, NOW)
    assert SIGNER.session_of(cookie, NOW + LIFETIME) is None


def test_a_cookie_with_another_signature_is_refused() -> None:
    forged = SessionSigner(b"another secret").cookie_for(KEY, NOW)
    content, _, signature = SIGNER.cookie_for(KEY, NOW).partition(".")
    other, _, _ = SIGNER.cookie_for(KEY, NOW + LIFETIME).partition(".")
    for cookie in (None, "", ".", "x", "x.y", "é.ü", forged, content, f"{other}.{signature}"):
        assert SIGNER.session_of(cookie, NOW) is None
