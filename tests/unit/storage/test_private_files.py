"""Permissions of files and folders on a local disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from resurgence.storage.object_store import ObjectStore
from resurgence.storage.private_files import make_private_folder, open_private_log


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_every_folder_that_was_missing_is_private(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "state" / "logs")
    make_private_folder(tmp_path / "state" / "logs")
    assert mode(tmp_path / "state") == mode(tmp_path / "state" / "logs") == 0o700


def test_a_folder_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    make_private_folder(tmp_path / "state")
    ObjectStore(str(tmp_path / "state"), private=True)
    assert mode(tmp_path / "state") == 0o755


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(FileExistsError):
        make_private_folder(tmp_path / "state")


def test_a_log_is_private_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "rides.log"
    for line in (b"one\n", b"two\n"):
        with open_private_log(path) as log:
            log.write(line)
    assert path.read_bytes() == b"one\ntwo\n"
    assert (mode(path.parent), mode(path)) == (0o700, 0o600)


def test_state_is_private_and_output_of_sinks_follows_the_umask(tmp_path: Path) -> None:
    ObjectStore(str(tmp_path / "state"), private=True)
    ObjectStore(str(tmp_path / "output"))
    assert (mode(tmp_path / "state"), mode(tmp_path / "output")) == (0o700, 0o755)
