"""Names of jobs, and identities."""

from __future__ import annotations

import pytest

from resurgence.errors import ConfigError
from resurgence.ids import job_name, new_identity


@pytest.mark.parametrize("text", ["a", "Rides", "rides.per-hour_2", "0", "x" * 100])
def test_a_name_of_letters_digits_and_a_few_signs_is_accepted(text: str) -> None:
    assert job_name(text) == text


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", ".hidden", "-x", "_x", "a/b", "a b", "ä", "a\n", "a\0", "../x", "x" * 101],
)
def test_a_name_that_is_no_plain_folder_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="invalid job name") as caught:
        job_name(text)
    assert "--name" in caught.value.hint


def test_identities_are_never_the_same() -> None:
    assert len({new_identity() for _ in range(1000)}) == 1000
