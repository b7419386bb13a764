"""A store whose requests fail: the client retries what it may, gives up in time, and a create is
never done twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from resurgence.errors import StorageError
from resurgence.storage.access import AccessOverrides, Deadlines, override_access
from resurgence.storage.object_store import ObjectStore
from resurgence.storage.parquet import create_new
from tests.servers.faulty_proxy import Failure, Fault, FaultyProxy

DATA = b"x" * 100_000
UNANSWERED = (Failure.NO_ANSWER, Failure.SLOW_BODY)
"""The client waits for a response until its deadline."""


@pytest.fixture(autouse=True)
def short_deadlines() -> Iterator[None]:
    deadlines = Deadlines(request=timedelta(seconds=3), retries=timedelta(seconds=30))
    override_access(AccessOverrides(deadlines=deadlines))
    yield
    override_access(AccessOverrides())


@pytest.mark.parametrize("failure", Failure)
def test_a_read_is_retried_until_it_succeeds(
    s3_proxy: FaultyProxy, s3_url: str, failure: Failure
) -> None:
    store = ObjectStore(s3_url)
    store.create("a", DATA)
    fault = Fault(failure, "GET")
    s3_proxy.inject(fault)
    assert store.read("a") == DATA
    assert fault.struck == 1


@pytest.mark.parametrize("failure", [each for each in Failure if each not in UNANSWERED])
def test_an_object_with_a_unique_name_is_created_once(
    s3_proxy: FaultyProxy, s3_url: str, failure: Failure
) -> None:
    """Also if the response was lost: the client retries, and the server responds that the object
    exists.
    """
    store = ObjectStore(s3_url)
    fault = Fault(failure, "CREATE")
    s3_proxy.inject(fault)
    create_new(store, "a", DATA)
    assert store.read("a") == DATA
    assert fault.struck == 1


@pytest.mark.parametrize("failure", UNANSWERED)
def test_a_create_without_an_answer_is_an_error_in_time(
    s3_proxy: FaultyProxy, s3_url: str, failure: Failure
) -> None:
    """Its outcome is unknown, so the client does not retry."""
    store = ObjectStore(s3_url)
    s3_proxy.inject(Fault(failure, "CREATE"))
    with pytest.raises(StorageError, match="cannot write"):
        store.create("a", DATA)
    assert s3_proxy.arrived["CREATE"] == 1


def test_a_store_that_always_fails_is_given_up(s3_proxy: FaultyProxy, s3_url: str) -> None:
    store = ObjectStore(s3_url)
    s3_proxy.inject(Fault(Failure.SLOW_DOWN, times=1000))
    with pytest.raises(StorageError, match="503"):
        store.read("a")
    assert 1 < s3_proxy.arrived["GET"] < 20
