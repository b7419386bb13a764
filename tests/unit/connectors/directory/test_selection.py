"""Which files of a folder are read, and where a listing begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from resurgence.connectors.directory.selection import Selection, require_partitions
from resurgence.errors import UserError

PATHS = [
    ".resurgence/x.json",
    "2024/01/a.json",
    "2024/01/b.csv",
    "2024/_temporary/c.json",
    "2024/a.json",
    "2025/[x].json",
    "a.json",
    "ab",
]


def selected(path: str, regex: str | None = None) -> list[str]:
    matches = Selection.of(path, regex).matcher()
    return [each for each in PATHS if matches(each)]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("in", [path for path in PATHS if "/_" not in path and not path.startswith(".")]),
        ("in/*.json", ["a.json"]),
        ("in/**/*.json", ["2024/01/a.json", "2024/a.json", "2025/[x].json", "a.json"]),
        ("in/*/a.json", ["2024/a.json"]),
        ("in/202[0-4]/*.json", ["2024/a.json"]),
        ("in/202[!4]/*", ["2025/[x].json"]),
        ("in/a?", ["ab"]),
        ("in/ab*", ["ab"]),
    ],
)
def test_a_path_with_patterns_selects_files(path: str, found: list[str]) -> None:
    assert selected(path) == found


def test_a_regular_expression_is_searched_in_the_relative_path() -> None:
    assert selected("in", r"^2024/.*\.json$") == ["2024/01/a.json", "2024/a.json"]
    assert selected("in/*", "b") == ["ab"]


@pytest.mark.parametrize(
    ("path", "url", "pattern"),
    [
        ("s3://bucket/logs/*/x-*.json", "s3://bucket/logs", "*/x-*.json"),
        ("s3://bucket/*.json", "s3://bucket", "*.json"),
        ("s3://bucket/logs/", "s3://bucket/logs", ""),
        ("/data/in/2024-*", "file:///data/in", "2024-*"),
        ("/*.json", "file:///", "*.json"),
        ("*.json", f"file://{Path.cwd()}", "*.json"),
    ],
)
def test_the_folder_before_the_first_pattern_is_listed(path: str, url: str, pattern: str) -> None:
    selection = Selection.of(path, None)
    assert (selection.url, selection.pattern) == (url, pattern)


def test_a_listing_begins_and_ends_with_the_text_before_the_first_pattern() -> None:
    selection = Selection.of("in/2024-0*.json", None)
    assert selection.before < "2024-0" <= "2024-01.json"
    assert selection.before > "2024-/x"
    assert not selection.is_beyond("2024-01.json")
    assert not selection.is_beyond("2023")
    assert selection.is_beyond("2024-1.json")
    assert Selection.of("in", None).before == ""
    assert not Selection.of("in", None).is_beyond("z")


def test_a_file_outside_of_the_folders_of_partitions_is_an_error() -> None:
    require_partitions("/in/day=1/a", "day=1/a", ("day",))
    with pytest.raises(UserError, match=r"day=1\.json is in no folder 'day=…'"):
        require_partitions("/in/city=x/day=1.json", "city=x/day=1.json", ("city", "day"))
