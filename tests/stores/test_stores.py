"""Every kind of object store keeps the promises that checkpoints rest on. The fixtures have proven
that of many concurrent creates exactly one wins.
"""

from __future__ import annotations

import pytest

from resurgence.errors import ObjectMissing, StorageError
from resurgence.storage.object_store import ObjectStore, StoredObject


@pytest.fixture(
    params=[
        "s3_url",
        pytest.param("azure_url", marks=pytest.mark.long),
        pytest.param("gcs_url", marks=pytest.mark.long),
    ]
)
def store(request: pytest.FixtureRequest) -> ObjectStore:
    return ObjectStore(request.getfixturevalue(request.param))


def test_a_create_never_changes_an_object(store: ObjectStore) -> None:
    assert store.create("folder/a", b"first")
    assert not store.create("folder/a", b"second")
    assert store.read("folder/a") == b"first"


def test_objects_are_replaced_listed_and_read_in_part(store: ObjectStore) -> None:
    store.replace("folder/b", b"old")
    store.replace("folder/b", b"newer")
    store.create("folder/deep/a", b"")
    assert store.list("folder") == (StoredObject("folder/b", 5), StoredObject("folder/deep/a", 0))
    assert store.read_range("folder/b", 1, 3) == b"ew"
    assert store.size("folder/b") == 5


def test_a_listing_has_the_etags_that_reads_have(store: ObjectStore) -> None:
    for path in ("b", "a/é=1/x", "a/deep/b", "c"):
        store.replace(path, f"first {path}".encode())
    before = {each.path: each for each in store.files("a/e")}
    assert [*before] == sorted(["b", "a/é=1/x", "c"])
    assert before["b"].size == 7
    assert store.read_version("b", 0, 5) == (b"first", before["b"].etag)
    store.replace("b", b"other b")
    after = {each.path: each for each in store.files()}
    assert after["b"].etag != before["b"].etag
    assert after["c"] == before["c"]
    assert store.read_version("b", 0, 5) == (b"other", after["b"].etag)
    assert after["b"].modified >= before["b"].modified > 0


def test_absent_objects_are_known_to_be_absent(store: ObjectStore) -> None:
    assert store.size("absent") is None
    assert store.list("absent") == ()
    store.delete(["absent"])
    for call in (store.read, lambda path: store.move({path: "target"})):
        with pytest.raises(ObjectMissing):
            call("absent")


def test_a_move_that_stopped_between_copy_and_delete_is_repeated(store: ObjectStore) -> None:
    """On an object store a move is a copy and a deletion."""
    store.create("staged", b"rows")
    store.create("final", b"rows")
    store.delete(store.move({"staged": "final"}))
    assert store.read("final") == b"rows"
    assert store.size("staged") is None


def test_a_bucket_that_does_not_exist_is_an_error(s3_url: str) -> None:
    with pytest.raises(StorageError):
        ObjectStore("s3://absent/folder").create("a", b"")
