"""The hierarchy of errors: domain, retry hint and code of each."""

from __future__ import annotations

import traceback

import pytest

from resurgence import errors
from resurgence.errors import ErrorDomain, ResurgenceError, RetryHint, UserError, did_you_mean
from resurgence.secrets import MASK, concealer_for

KINDS = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, ResurgenceError)
]


def test_every_error_has_a_unique_code() -> None:
    codes = [each.code for each in KINDS]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("kind", [each for each in KINDS if issubclass(each, UserError)])
def test_user_errors_are_not_retried(kind: type[UserError]) -> None:
    assert (kind.domain, kind.retry_hint) == (ErrorDomain.USER, RetryHint.NO_RETRY)


def test_an_outage_is_retried() -> None:
    assert errors.StorageError.domain is ErrorDomain.EXTERNAL
    assert errors.StorageError.retry_hint is RetryHint.WITH_BACKOFF


def traceback_of(error: ResurgenceError) -> str:
    try:
        try:
            raise errors.StorageError("the cause\nof it", hint="not this one")
        except errors.StorageError as cause:
            raise error from cause
    except ResurgenceError as raised:
        return "".join(traceback.format_exception(raised))


@pytest.mark.parametrize(
    "error",
    [
        errors.SinkError("cannot write"),
        errors.SourceError(
            "two\nlines: {of} it", hint='with "quotes"\nand more', position="line 3"
        ),
        errors.FunctionFailed("f failed", traceback="Traceback\n  File 'žába', line 3\nX: y"),
        errors.DamagedState("damaged", path="a/b.parquet"),
        errors.SqlError("bad", line=3, column=9),
        errors.NewerFormat("newer", intact=True),
    ],
    ids=lambda each: type(each).__name__,
)
def test_an_error_is_read_back_whole_from_the_text_of_its_traceback(error: ResurgenceError) -> None:
    text = f"[PYTHON_EXCEPTION] thrown: {traceback_of(error)} SQLSTATE: 38000\n\tat org.apache"
    read = errors.error_in_traceback(text)
    assert type(read) is type(error)
    assert read is not None
    assert vars(read) == vars(error)
    assert str(read) == str(error)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ValueError: resurgence.errors.SinkError: x",
        "resurgence.errors.SinkError: cut off",
        'resurgence.errors.NoSuchKind: x\nresurgence.error {"hint": ""}',
        'resurgence.errors.StrEnum: x\nresurgence.error {"hint": ""}',
        'resurgence.errors.SinkError: x\nresurgence.error {"hint": "cut of',
    ],
)
def test_other_texts_carry_no_error(text: str) -> None:
    assert errors.error_in_traceback(text) is None


def test_a_secret_is_concealed_in_all_that_a_traceback_shows() -> None:
    secret = 'pa"ss\\wörd'
    error = errors.SinkError(f"no entry with {secret}", hint=f"is {secret} right?", position=secret)
    shown = concealer_for([{"password": secret}]).text(traceback_of(error))
    assert "wörd" not in shown
    assert "w\\u00f6rd" not in shown
    assert shown.count(MASK) == 3


def test_a_suggestion_is_the_nearest_known_name_in_its_spelling() -> None:
    assert did_you_mean("parallelsm", ["Parallelism", "keep"]) == "Perhaps you meant 'Parallelism'."


def test_without_a_suggestion_the_known_names_are_listed_if_they_are_few() -> None:
    assert did_you_mean("xyz", ["b", "a"]) == "Use one of: a, b."
    assert did_you_mean("xyz", [f"word{number}" for number in range(13)]) == ""
    assert did_you_mean("xyz", []) == ""
