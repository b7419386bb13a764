"""The object store on a local folder and in memory: what its verbs promise."""

from __future__ import annotations

import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from resurgence.errors import ConfigError, ObjectMissing, StorageError
from resurgence.storage.object_store import (
    ObjectStore,
    StoredObject,
    require_writable,
    shared_store,
    storage_url,
)
from resurgence.storage.parallel import in_parallel
from resurgence.storage.parquet import create_new


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return ObjectStore(str(tmp_path / "store") if request.param == "local" else "memory:///store")


def test_an_object_is_read_back_as_it_was_written(store: ObjectStore) -> None:
    assert store.create("a/b/c.json", b"content")
    assert store.read("a/b/c.json") == b"content"
    assert store.size("a/b/c.json") == 7


def test_nothing_is_ever_overwritten(store: ObjectStore) -> None:
    assert store.create("a", b"first")
    assert not store.create("a", b"second")
    assert store.read("a") == b"first"


def test_of_concurrent_creates_of_an_object_one_wins(store: ObjectStore) -> None:
    rivals = [f"{number}".encode() * 1000 for number in range(32)]
    for name in ("one", "two", "three"):
        with ThreadPoolExecutor(8) as threads:
            won = list(threads.map(lambda data, name=name: store.create(name, data), rivals))
        assert won.count(True) == 1
        assert store.read(name) == rivals[won.index(True)]


def test_an_empty_object_is_an_object(store: ObjectStore) -> None:
    assert store.create("empty", b"")
    assert (store.read("empty"), store.size("empty")) == (b"", 0)
    assert store.list("") == (StoredObject("empty", 0),)


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [(0, 4, b"0123"), (3, 7, b"3456"), (0, 10, b"0123456789"), (4, 4, b""), (9, 10, b"9")],
)
def test_the_end_of_a_range_is_exclusive(
    store: ObjectStore, start: int, end: int, found: bytes
) -> None:
    store.create("digits", b"0123456789")
    assert store.read_range("digits", start, end) == found


def test_a_listing_is_sorted_recursive_and_limited_to_its_folder(store: ObjectStore) -> None:
    for path in ("x/b", "x/a/2", "x/a/10", "xy/c", "x.json"):
        store.create(path, b"12")
    assert store.list("x") == tuple(StoredObject(path, 2) for path in ("x/a/10", "x/a/2", "x/b"))
    assert store.list("nothing/here") == ()


def test_a_listing_can_start_after_a_path(store: ObjectStore) -> None:
    for number in (1, 2, 9, 10):
        store.create(f"x/{number:03}", b"")
    store.create("y/050", b"")
    assert [each.path for each in store.list("x", after="x/002")] == ["x/009", "x/010"]
    assert [each.path for each in store.list("x", after="x/005")] == ["x/009", "x/010"]
    assert store.list("x", after="x/010") == ()


def test_many_objects_are_deleted_even_if_some_are_gone(store: ObjectStore) -> None:
    for number in range(40):
        store.create(f"x/{number}", b"")
    store.delete([f"x/{number}" for number in range(1, 60)])
    assert [each.path for each in store.list("")] == ["x/0"]


def test_deleting_a_missing_object_is_no_error(store: ObjectStore) -> None:
    store.create("a/one", b"")
    store.create("b", b"")
    store.delete(["a/one", "a/one", "never/was"])
    assert [each.path for each in store.list("")] == ["b"]


def test_a_folder_left_empty_can_be_used_again(store: ObjectStore) -> None:
    store.create("a/one", b"1")
    store.delete(["a/one"])
    assert store.create("a/one", b"2")
    assert store.read("a/one") == b"2"


def test_reading_a_missing_object_is_an_error(store: ObjectStore) -> None:
    for read in (
        lambda: store.read("a/missing"),
        lambda: store.read_range("a/missing", 0, 5),
        lambda: store.move({"a/missing": "b"}),
    ):
        with pytest.raises(ObjectMissing, match="a/missing: it does not exist"):
            read()
    assert store.size("a/missing") is None


def test_a_move_replaces_its_target(store: ObjectStore) -> None:
    store.create("a", b"new")
    store.create("b", b"old")
    store.delete(store.move({"a": "b"}))
    assert store.read("b") == b"new"
    assert store.size("a") is None


def test_many_objects_are_moved_and_one_that_is_missing_is_named(store: ObjectStore) -> None:
    for number in range(5):
        store.create(f"a/{number}", b"%d" % number)
    store.delete(store.move({f"a/{number}": f"b/{number}" for number in range(5)}))
    assert [(each.path, each.size) for each in store.list("")] == [
        (f"b/{number}", 1) for number in range(5)
    ]
    with pytest.raises(ObjectMissing, match="b/7: it does not exist"):
        store.move({"b/0": "c/0", "b/7": "c/7"})


def test_calls_in_parallel_return_in_order_and_raise_when_all_have_ended() -> None:
    started = threading.Barrier(3, timeout=20)
    ended: list[int] = []

    def call(number: int) -> int:
        started.wait()
        ended.append(number)
        if number == 1:
            raise StorageError("one failed")
        return number

    with pytest.raises(StorageError, match="one failed"):
        in_parallel([functools.partial(call, number) for number in range(3)])
    assert sorted(ended) == [0, 1, 2]
    assert in_parallel([lambda: 1, lambda: 2]) == [1, 2]
    assert in_parallel([]) == []


def test_a_name_that_someone_else_has_is_an_error(store: ObjectStore) -> None:
    create_new(store, "a", b"1")
    with pytest.raises(StorageError, match="already exists"):
        create_new(store, "a", b"2")


def test_a_create_that_was_resent_finds_its_own_object(store: ObjectStore) -> None:
    create_new(store, "a", b"1")
    create_new(store, "a", b"1")
    assert store.read("a") == b"1"


def test_a_place_that_cannot_be_opened_is_a_storage_error() -> None:
    with pytest.raises(StorageError, match="cannot open nonsense://x"):
        ObjectStore("nonsense://x")


# ---------------------------------------------------------------- places


def test_a_plain_path_becomes_a_url_that_does_not_depend_on_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert storage_url("state dir") == f"file://{tmp_path}/state dir"
    assert storage_url(f"file://{tmp_path}/x") == f"file://{tmp_path}/x"
    assert storage_url("s3://bucket/x") == "s3://bucket/x"


def test_a_path_and_its_url_are_the_same_place(tmp_path: Path) -> None:
    ObjectStore(storage_url(str(tmp_path / "a b"))).create("x", b"1")
    assert ObjectStore(str(tmp_path / "a b")).read("x") == b"1"


def test_a_process_has_one_client_for_a_url(tmp_path: Path) -> None:
    assert shared_store(str(tmp_path)) is shared_store(str(tmp_path))


@pytest.mark.parametrize("store", ["local"], indirect=True)
def test_a_writable_folder_is_accepted(store: ObjectStore) -> None:
    require_writable(store)


@pytest.mark.parametrize("store", ["local"], indirect=True)
def test_a_read_only_folder_is_a_config_error(store: ObjectStore, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.chmod(0o555)
    try:
        with pytest.raises(ConfigError, match="cannot write to") as caught:
            require_writable(store)
        assert "--state-dir" in caught.value.hint
    finally:
        folder.chmod(0o755)


@pytest.mark.parametrize("store", ["local"], indirect=True)
def test_a_folder_that_cannot_be_created_is_a_config_error(
    store: ObjectStore, tmp_path: Path
) -> None:
    (tmp_path / "store").rmdir()
    (tmp_path / "store").write_bytes(b"a file is in the way")
    with pytest.raises(ConfigError, match="cannot create the folder"):
        require_writable(store)
