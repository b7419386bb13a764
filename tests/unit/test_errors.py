"""The tree of errors: blame, retry and code of each."""

from __future__ import annotations

import pytest

from resurgence import errors
from resurgence.errors import ErrorDomain, ResurgenceError, RetryHint, UserError, did_you_mean

KINDS = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, ResurgenceError)
]


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [each.code for each in KINDS]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("kind", [each for each in KINDS if issubclass(each, UserError)])
def test_what_the_user_must_mend_is_not_tried_again(kind: type[UserError]) -> None:
    assert (kind.domain, kind.retry_hint) == (ErrorDomain.USER, RetryHint.NO_RETRY)


def test_an_outage_is_tried_again() -> None:
    assert errors.StorageError.domain is ErrorDomain.EXTERNAL
    assert errors.StorageError.retry_hint is RetryHint.WITH_BACKOFF


def test_a_guess_is_the_nearest_known_word_as_it_is_spelt() -> None:
    assert did_you_mean("parallelsm", ["Parallelism", "keep"]) == "did you mean 'Parallelism'?"


def test_without_a_guess_the_known_words_are_named_when_they_are_few() -> None:
    assert did_you_mean("xyz", ["b", "a"]) == "known: a, b"
    assert did_you_mean("xyz", [f"word{number}" for number in range(13)]) == ""
    assert did_you_mean("xyz", []) == ""
