"""Secrets in options: which values are shown, how references are resolved, and what errors may
contain.
"""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from resurgence.errors import DamagedState, ResurgenceError, SqlError, UserError
from resurgence.graph.specs.source import SourceSpec
from resurgence.ids import OperatorId
from resurgence.secrets import (
    Concealer,
    concealer_for,
    is_masked,
    is_secret,
    open_options,
    reference_fault,
    shown_value,
)


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "Password",
        "ssl.keystore.password",
        "client_secret",
        "session.token",
        "ssl.key",
        "access_key",
        "API_KEY",
        "apikey",
        "x-api-key",
        "sasl.mechanism",
        "kafka.sasl.jaas.config",
        "credentials",
    ],
)
def test_names_that_say_secret(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["path", "format", "key", "keys", "monkey", "sasl", "url", ""])
def test_names_that_do_not(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("password", "hunter2", "***"),
        ("password", "", ""),
        ("password", "pg://me:hunter2@host", "***"),
        ("password", "${env:PW}", "${env:PW}"),
        ("password", "${env:A}${file:/run/b}", "${env:A}${file:/run/b}"),
        ("password", "x${env:PW}", "***"),
        ("password", "$${env:PW}", "***"),
        ("path", "hunter2", "hunter2"),
        ("url", "jdbc:pg://me:hunter2@host/db", "jdbc:pg://me:***@host/db"),
        ("url", "jdbc:pg://:hunter2@host", "jdbc:pg://:***@host"),
        ("url", "pg://me:hun@ter2@host/a@b", "pg://me:***@host/a@b"),
        ("url", "pg://me:hun/ter2@host", "pg://me:***@host"),
        ("url", "pg://me:${env:PW}@host", "pg://me:${env:PW}@host"),
        ("url", "pg://${env:ME}:${file:/run/pw}@host", "pg://${env:ME}:${file:/run/pw}@host"),
        ("url", "pg://me:x${env:PW}@host", "pg://me:***@host"),
        ("url", "pg://me:a@one,pg://me:b@two", "pg://me:***@one,pg://me:***@two"),
        (
            "url",
            "pg://host/db?user=me&password=hunter2&x=1",
            "pg://host/db?user=me&password=***&x=1",
        ),
        ("url", "pg://host/db?password=${env:PW}", "pg://host/db?password=${env:PW}"),
        ("url", "pg://me:a@host?token=x@y", "pg://me:***@host?token=***"),
        ("path", "s3://bucket/a:b@c", "s3://bucket/a:b@c"),
        ("path", "http://host:8080/a@b", "http://host:8080/a@b"),
        ("path", "me@host:22", "me@host:22"),
    ],
)
def test_literal_secrets_are_masked_and_references_are_shown(
    name: str, value: str, shown: str
) -> None:
    assert shown_value(name, value) == shown
    assert shown_value(name, shown) == shown
    assert is_masked(name, shown) == (shown != value)


def test_the_place_that_a_checkpoint_records_holds_no_secret() -> None:
    operator = SourceSpec(
        id=OperatorId("source-t"),
        table="t",
        connector="c",
        options={"path": "pg://me:hunter2@host"},
        columns=(),
    )
    assert operator.place == "c pg://me:***@host"


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"hunter2", "hunter2"),
        (b"hunter2\n", "hunter2"),
        (b"hunter2\n\n", "hunter2\n"),
        (b"hunter2\r\n", "hunter2"),
        (b"two\r\nlines\n", "two\r\nlines"),
        (b" \n", " "),
        (b"", ""),
    ],
)
def test_a_file_is_read_without_one_trailing_newline(
    tmp_path: Path, content: bytes, value: str
) -> None:
    (tmp_path / "pw").write_bytes(content)
    opened = open_options("t", {"password": f"${{file:{tmp_path}/pw}}"})
    assert opened.values == {"password": value}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${env:RESURGENCE_PW}", "hunter2"),
        ("a${env:RESURGENCE_PW}b${env:RESURGENCE_PW}", "ahunter2bhunter2"),
        ("$${env:RESURGENCE_PW}", "${env:RESURGENCE_PW}"),
        ("$${${env:RESURGENCE_PW}}", "${hunter2}"),
        ("${env:RESURGENCE_NESTED}", "${env:RESURGENCE_PW}"),
        ("$5 {x} $", "$5 {x} $"),
    ],
)
def test_references_are_read_once_wherever_they_stand(
    monkeypatch: pytest.MonkeyPatch, written: str, value: str
) -> None:
    monkeypatch.setenv("RESURGENCE_PW", "hunter2")
    monkeypatch.setenv("RESURGENCE_NESTED", "${env:RESURGENCE_PW}")
    opened = open_options("t", {"path": written})
    assert opened.values == {"path": value}
    assert "hunter2" not in repr(opened)


@pytest.mark.parametrize(
    ("reference", "reason", "hint"),
    [
        (
            "${env:RESURGENCE_NONE}",
            "environment variable 'RESURGENCE_NONE' is not set",
            "Set RESURGENCE",
        ),
        ("${file:none}", "cannot read the file: No such file", "Check its path"),
        ("${file:.}", "cannot read the file: Is a directory", "Check its path"),
        ("${file:binary}", "not UTF-8 text", "Check its path"),
        ("${foo:x}", "unknown", "${env:NAME}"),
    ],
)
def test_what_cannot_be_read_is_named_with_table_option_and_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, reason: str, hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("binary").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError) as caught:
        open_options("rides", {"path": "x", "password": f"a{reference}b"})
    assert f"table 'rides', option 'password': {reference}: " in caught.value.message
    assert reason in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("name", "value"), [("password", "***"), ("url", "pg://me:***@host"), ("u", "p://h?token=***")]
)
def test_a_masked_value_is_never_passed_to_a_connector(name: str, value: str) -> None:
    with pytest.raises(UserError, match=f"option '{name}': the secret is masked"):
        open_options("rides", {name: value})


@pytest.mark.parametrize(
    ("value", "message", "hint"),
    [
        ("${foo:x}", "unknown kind 'foo'", "${file:PATH}"),
        ("a${evn:x}", "unknown kind 'evn'", "Perhaps you meant 'env'."),
        ("${ENV:X}", "unknown kind 'ENV'", "Perhaps you meant 'env'."),
        ("${:x}", "unknown kind ''", "${env:NAME}"),
        ("${env}", "invalid reference", "$${"),
        ("${env:}", "invalid reference", "$${"),
        ("${env:X", "invalid reference", "$${"),
        ("${env:A}${", "invalid reference", "$${"),
    ],
)
def test_invalid_references_are_reported(value: str, message: str, hint: str) -> None:
    fault = reference_fault("path", value)
    assert fault is not None
    assert message in fault[0]
    assert hint in fault[1]


def test_a_secret_that_looks_like_a_wrong_reference_is_not_quoted() -> None:
    fault = reference_fault("password", "a${hunter2:x}")
    assert fault is not None
    assert "hunter2" not in "".join(fault)


@pytest.mark.parametrize("value", ["", "${env:X}", "${file:/a:b}", "$${foo:x}", "$${", "$ {", "{}"])
def test_right_references_and_literals_have_no_fault(value: str) -> None:
    assert reference_fault("path", value) is None


SECRET = "hun ter/2'\"é"


@pytest.mark.parametrize(
    "quoted",
    [
        "hun ter/2'\"é",
        repr("hun ter/2'\"é"),
        '"hun ter/2\'\\"\\u00e9"',
        "hun%20ter/2%27%22%C3%A9",
        "hun%20ter%2F2%27%22%C3%A9",
    ],
)
def test_a_secret_is_found_however_it_is_quoted(quoted: str) -> None:
    reported = Concealer({SECRET: "${env:PW}"}).text(f"cannot log in with {quoted}!")
    assert "${env:PW}" in reported
    assert "hun" not in reported


@pytest.mark.parametrize(
    ("value", "text", "shown"),
    [
        ("", "nothing, at all", "nothing, at all"),
        ("\n", "two,\n lines", "two,\n lines"),
        ("1", "line 1, column 12", "line #, column 12"),
        ("hunter2", "xhunter2x", "x#x"),
        ("first line\nsecond line", "no 'second line'", "no '#'"),
        ("hunter2", "pg://me:other@host", "pg://me:***@host"),
    ],
)
def test_only_secrets_are_removed_from_a_text(value: str, text: str, shown: str) -> None:
    assert Concealer({value: "#"}).text(text) == shown


def test_the_longest_secret_is_removed_first() -> None:
    concealer = Concealer({"hunter": "A", "hunter2": "B", "A": "C"})
    assert concealer.text("hunter2 hunter") == "B A"


def test_secrets_of_several_tables_are_concealed_and_missing_ones_are_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RESURGENCE_PW", "hunter2")
    concealer = concealer_for(
        [
            {"password": "${env:RESURGENCE_NONE}", "token": "literal"},
            {"url": "pg://me:embedded@host", "path": "/a/${env:RESURGENCE_PW}"},
        ]
    )
    reported = concealer.text("literal, embedded, /a/hunter2, me")
    assert reported == "***, ***, /a/${env:RESURGENCE_PW}, me"


@pytest.mark.parametrize(
    "error",
    [
        UserError("no login with hunter2", hint="is hunter2 right?"),
        SqlError("hunter2", line=3, column=4, hint="hunter2"),
        DamagedState("broken", path="/a/hunter2"),
    ],
)
def test_our_errors_keep_their_kind_and_lose_their_secrets(error: ResurgenceError) -> None:
    with (
        pytest.raises(type(error)) as caught,
        Concealer({"hunter2": "${env:PW}"}).over_errors(),
    ):
        raise error
    assert "hunter2" not in f"{vars(caught.value)} {caught.value}"
    assert "${env:PW}" in str(vars(caught.value))


def test_the_cause_of_an_error_does_not_reveal_a_secret() -> None:
    with (
        pytest.raises(UserError) as caught,
        Concealer({"hunter2": "${env:PW}"}).over_errors(),
    ):
        try:
            raise OSError(2, "gone", "/a/hunter2")
        except OSError as error:
            raise UserError("cannot open it") from error
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_a_foreign_error_with_a_secret_becomes_ours() -> None:
    with (
        pytest.raises(ResurgenceError) as caught,
        Concealer({"hunter2": "${env:PW}"}).over_errors(),
    ):
        raise OSError(2, "gone", "/a/hunter2")
    assert caught.value.message == "FileNotFoundError: [Errno 2] gone: '/a/${env:PW}'"
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_an_error_without_secrets_passes_untouched() -> None:
    cause = ValueError("why")
    with pytest.raises(KeyError) as caught, Concealer({"hunter2": "#"}).over_errors():
        raise KeyError("x") from cause
    assert caught.value.__cause__ is cause
