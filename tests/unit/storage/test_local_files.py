"""A local folder is listed as an object store lists it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from resurgence.storage.local_files import local_files
from resurgence.storage.object_store import ObjectStore

NAMES = ["a.json", "a/b", "a/c/d", "a0", "b/x", "b/y", "ä"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for each in reversed(NAMES):
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / each).write_bytes(each.encode())
    return tmp_path


def names(folder: Path, after: str = "") -> list[str]:
    return [each.path for each in local_files(str(folder), after)]


@pytest.mark.parametrize("after", ["", *NAMES, "a/", "a/z", "b", "b/z", "c"])
def test_files_after_a_path_are_listed_in_the_order_of_paths(folder: Path, after: str) -> None:
    assert names(folder, after) == [each for each in sorted(NAMES) if each > after]


def test_folders_that_precede_the_path_are_not_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    scan = os.scandir

    def recorded(path: str) -> object:
        opened.append(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", recorded)
    assert names(folder, "b/x") == ["b/y", "ä"]
    assert opened == [str(folder), f"{folder}/b"]


def test_links_are_followed_but_not_around_in_circles(folder: Path) -> None:
    (folder / "b" / "up").symlink_to(folder)
    (folder / "c").symlink_to(folder / "a")
    assert names(folder, "b/") == ["b/x", "b/y", "c/b", "c/c/d", "ä"]


def test_an_etag_changes_with_the_content_and_is_that_of_the_bytes_read(folder: Path) -> None:
    store = ObjectStore(f"file://{folder}")
    before = {each.path: each for each in store.files()}
    assert store.read_version("a/b", 1, 3) == (b"/b", before["a/b"].etag)
    (folder / "a" / "b").write_bytes(b"a/X")
    os.utime(folder / "a" / "b", ns=(0, 5))
    after = {each.path: each for each in store.files()}
    assert [path for path in NAMES if before[path] != after[path]] == ["a/b"]
    assert after["a/b"].modified == 0
    assert store.read_version("a/b", 0, 9) == (b"a/X", after["a/b"].etag)
