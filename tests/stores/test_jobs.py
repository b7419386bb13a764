"""Jobs whose state and sink are on an S3 server: they recover from crashes and from
every way in which requests fail, to the batch answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from resurgence.engine.spark.errors import translate
from resurgence.errors import InjectedFault, StorageError
from resurgence.storage.access import AccessOverrides, Deadlines, override_access
from tests.faults.scenario import Scenario
from tests.servers.faulty_proxy import Failure, Fault, FaultyProxy

FAULTS = (
    (Failure.SLOW_DOWN, "", "", 5),
    (Failure.SERVER_ERROR, "CREATE", "operator-", 2),
    (Failure.NO_ANSWER, "CREATE", "/epochs/", 1),
    (Failure.SLOW_BODY, "GET", ".parquet", 1),
    (Failure.CUT_UPLOAD, "CREATE", "/tables/", 1),
    (Failure.LOST_ANSWER, "CREATE", "/tables/", 1),
    (Failure.LOST_ANSWER, "CREATE", "manifest-", 1),
    (Failure.LOST_ANSWER, "CREATE", "/staged/", 1),
    (Failure.LOST_ANSWER, "COPY", "/hourly/", 1),
    (Failure.FAILED_ANSWER, "CREATE", "generations/", 1),
    (Failure.FAILED_ANSWER, "CREATE", "committed.json", 1),
)
"""Of the requests of a job: state files, metadata, manifest, the sink's files and its commit."""


@pytest.fixture
def short_deadlines() -> Iterator[None]:
    deadlines = Deadlines(request=timedelta(seconds=4), retries=timedelta(seconds=30))
    override_access(AccessOverrides(deadlines=deadlines))
    yield
    override_access(AccessOverrides())


def finish_as_a_controller_does(scenario: Scenario) -> None:
    """With a new generation after each failure."""
    for _ in range(10):
        try:
            scenario.finish()
        except Exception as error:
            if not isinstance(translate(error), StorageError):
                raise
        else:
            return
    pytest.fail("the job does not recover")


@pytest.mark.usefixtures("short_deadlines")
def test_a_job_recovers_from_every_failure_of_requests(
    s3_proxy: FaultyProxy, s3_scenario: Scenario
) -> None:
    faults = [Fault(failure, kind, path, times) for failure, kind, path, times in FAULTS]
    s3_proxy.inject(*faults)
    finish_as_a_controller_does(s3_scenario)
    s3_scenario.assert_exactly_once()
    assert [each for each in faults if each.struck != each.times] == []


@pytest.mark.long
@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.parametrize("failure", Failure)
@pytest.mark.parametrize("kind", ["CREATE", "GET", "COPY", "LIST", "DELETE"])
def test_a_job_recovers_from_a_failure_of_many_requests(
    s3_proxy: FaultyProxy, s3_scenario: Scenario, failure: Failure, kind: str
) -> None:
    s3_proxy.inject(Fault(failure, kind, times=3))
    finish_as_a_controller_does(s3_scenario)
    s3_scenario.assert_exactly_once()


def test_a_job_on_s3_recovers_from_a_crash_before_and_after_its_commit(
    s3_scenario: Scenario,
) -> None:
    for fault in ("state.partial@1=raise", "sink.committing@2=raise", "sink.committed@3=raise"):
        with pytest.raises(Exception) as caught:
            s3_scenario.finish(s3_scenario.engine(fault))
        assert isinstance(translate(caught.value), InjectedFault)
    s3_scenario.finish()
    s3_scenario.assert_exactly_once()
