"""Who may open the pages of the console, over a real server."""

from __future__ import annotations

import re
import socket
import time
from urllib.parse import urlsplit

import pytest
from tests.unit.ui.conftest import Console

from resurgence.control.store.metadata import KeyRole
from resurgence.ui.access.sessions import COOKIE


def page_id(page: str) -> str:
    found = re.search(r"""["']client_id["']:\s*["']([0-9a-f-]+)""", page)
    assert found
    return found[1]


def socket_status(console: Console, page: str, origin: str | None, cookie: str = "") -> int:
    """Ask for a WebSocket as a page would; return the status of the answer."""
    address = urlsplit(console.url)
    lines = [
        f"GET /_nicegui_ws/socket.io/?client_id={page}&EIO=4&transport=websocket HTTP/1.1",
        f"Host: {address.netloc}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        *([f"Origin: {origin}"] if origin else []),
        *([f"Cookie: {cookie}"] if cookie else []),
    ]
    assert address.hostname
    assert address.port
    with socket.create_connection((address.hostname, address.port), timeout=20) as opened:
        opened.sendall("\r\n".join([*lines, "", ""]).encode())
        with opened.makefile("rb") as answer:
            return int(answer.readline().split()[1])


def test_without_keys_pages_of_this_machine_need_no_login(open_console: Console) -> None:
    with open_console.client() as client:
        page = client.get("/")
    assert page.status_code == 200
    assert "rides" in page.text
    assert socket_status(open_console, page_id(page.text), open_console.url) == 101


def test_with_keys_a_page_leads_to_the_login(console: Console) -> None:
    with console.client() as client:
        found = client.get("/jobs/rides/events?q=1")
        assert found.status_code == 303
        assert found.headers["location"] == "/login?next=%2Fjobs%2Frides%2Fevents%3Fq%3D1"
        assert "rides" not in client.get("/login").text


def test_a_login_leads_back_to_the_page_with_a_cookie_for_this_site_only(console: Console) -> None:
    with console.client() as client:
        form = {"key": console.write, "next": "/jobs/rides"}
        found = client.post("/login", data=form, headers=console.origin)
        assert found.headers["location"] == "/jobs/rides"
        cookie = found.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "secure" not in cookie
        assert client.get("/").status_code == 200


def test_the_cookie_is_secure_if_the_page_was_loaded_by_tls(console: Console) -> None:
    with console.client() as client:
        origin = {"Origin": console.url.replace("http", "https", 1)}
        found = client.post("/login", data={"key": console.write}, headers=origin)
        assert "secure" in found.headers["set-cookie"].lower()


@pytest.mark.parametrize(
    "target", ["//other.example", "https://other.example/", "/v1/jobs", "/\\x"]
)
def test_a_login_never_leads_to_another_site(console: Console, target: str) -> None:
    with console.client() as client:
        found = client.post(
            "/login", data={"key": console.write, "next": target}, headers=console.origin
        )
        assert found.headers["location"] == "/"


def test_invalid_logins_are_bounded_and_a_valid_one_still_succeeds(console: Console) -> None:
    with console.client() as client:
        answers = [
            client.post("/login", data={"key": "guess"}, headers=console.origin).status_code
            for _ in range(14)
        ]
        assert set(answers) == {401, 429}
        assert (
            client.post("/login", data={"key": console.write}, headers=console.origin).status_code
            == 303
        )


@pytest.mark.parametrize("origin", [None, "http://other.example", "null"])
def test_a_login_must_come_from_a_page_of_this_service(
    console: Console, origin: str | None
) -> None:
    with console.client() as client:
        headers = {"Origin": origin} if origin else {}
        found = client.post("/login", data={"key": console.write}, headers=headers)
        assert found.status_code == 403
        assert "set-cookie" not in found.headers


def test_a_request_with_the_name_of_another_host_is_refused(console: Console) -> None:
    with console.logged_in(console.write) as client:
        assert client.get("/", headers={"Host": "other.example"}).status_code == 403


def test_a_session_ends_with_the_logout_also_for_copies_of_its_cookie(console: Console) -> None:
    with console.logged_in(console.write) as client, console.client() as thief:
        thief.cookies.set(COOKIE, client.cookies[COOKIE])
        assert thief.get("/").status_code == 200
        client.post("/logout", headers=console.origin)
        assert thief.get("/").status_code == 303


def test_a_session_ends_when_its_key_is_removed(console: Console) -> None:
    kept = console.keys.kept
    temporary = console.keys.add("temporary", KeyRole.WRITE)
    deadline = time.monotonic() + 60
    with console.client() as client:
        form = {"key": temporary}
        # Keys are read every two seconds.
        while client.post("/login", data=form, headers=console.origin).status_code != 303:
            assert time.monotonic() < deadline
            time.sleep(1)
        assert client.get("/").status_code == 200
        console.keys.kept = kept
        while client.get("/").status_code == 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert client.get("/").status_code == 303


def test_a_socket_is_refused_without_the_session_of_its_page(console: Console) -> None:
    with console.logged_in(console.write) as one, console.logged_in(console.read) as other:
        page = page_id(one.get("/").text)
        own = f"{COOKIE}={one.cookies[COOKIE]}"
        foreign = f"{COOKIE}={other.cookies[COOKIE]}"
        for origin, cookie in (
            (console.url, ""),
            (console.url, foreign),
            (None, own),
            ("http://other.example", own),
        ):
            assert socket_status(console, page, origin, cookie) == 403
        assert socket_status(console, page, console.url, own) == 101


def test_a_cookie_opens_no_path_of_the_api(console: Console) -> None:
    # 429 if other tests have used up the failed logins of this minute.
    refused = (401, 429)
    with console.logged_in(console.write) as client:
        assert client.get("/v1/jobs").status_code in refused
        assert client.get("/metrics").status_code in refused
        key = {"Authorization": f"Bearer {console.write}"}
        assert client.get("/v1/jobs", headers=key).status_code == 200


def test_a_read_only_key_sees_and_has_no_actions(console: Console) -> None:
    with console.logged_in(console.write) as writer, console.logged_in(console.read) as reader:
        for client, may_act in ((writer, True), (reader, False)):
            page = client.get("/").text
            assert "rides" in page
            assert ("data-job" in page) is may_act
            assert ("New job" in page) is may_act
        assert "needs a key of the role write" in reader.get("/new").text


def test_pages_have_security_headers_and_load_nothing_from_elsewhere(console: Console) -> None:
    with console.logged_in(console.write) as client:
        page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cache-control"] == "no-store"
    nonce = re.search(r"nonce-([\w-]+)", policy)
    assert nonce
    scripts = re.findall(r"<script[^>]*>", page.text)
    assert scripts
    assert all(f'nonce="{nonce[1]}"' in each for each in scripts)
    assert not re.findall(r"""(?:src|href)=["'](?:https?:)?//""", page.text)


def test_the_console_has_no_other_methods(console: Console) -> None:
    with console.logged_in(console.write) as client:
        assert client.post("/").status_code == 405
        assert client.delete("/jobs/rides").status_code == 405


def test_unknown_paths_are_answered_by_the_api(console: Console) -> None:
    with console.logged_in(console.write) as client:
        found = client.get("/nowhere", headers={"Authorization": f"Bearer {console.write}"})
        assert found.status_code == 404
        assert found.json()["error"]["code"] == "http.not_found"
