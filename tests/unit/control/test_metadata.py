"""The metadata database: what people look at, and nothing that a recovery needs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from resurgence.control.metadata import MetadataStore, stored_sql
from resurgence.errors import StorageError
from resurgence.ids import JobName

JOB = JobName("rides")
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def metadata(tmp_path: Path) -> Iterator[MetadataStore]:
    store = MetadataStore(tmp_path / "folder" / "metadata.db")
    yield store
    store.close()


def record(metadata: MetadataStore, job: JobName, state: str) -> None:
    metadata.record_state(
        job, identity="i", state=state, cause="c", generation=1, sql="SELECT 1", now=NOW
    )


def test_the_newest_state_of_each_job_is_kept(metadata: MetadataStore) -> None:
    assert metadata.state(JOB) is None
    record(metadata, JOB, "Created")
    record(metadata, JobName("other"), "Failed")
    record(metadata, JOB, "Running")
    assert metadata.state(JOB) == "Running"


def test_incidents_are_kept_apart_from_other_events(metadata: MetadataStore) -> None:
    metadata.record_event(JOB, {"event": "failure", "at": "1"})
    metadata.record_event(JOB, {"event": "incident", "at": "2", "detected_at": "1"})
    metadata.record_event(JobName("other"), {"event": "incident", "at": "3", "detected_at": "1"})
    assert [each["at"] for each in metadata.incidents(JOB)] == ["2"]


def test_a_database_that_cannot_be_opened_says_that_it_may_be_moved_away(tmp_path: Path) -> None:
    (tmp_path / "metadata.db").write_bytes(b"this is not a database, but it is long enough" * 9)
    with pytest.raises(StorageError, match="cannot open the metadata database") as caught:
        MetadataStore(tmp_path / "metadata.db")
    assert "move it away" in caught.value.hint


def test_the_pipeline_is_kept_without_its_literal_secrets(
    metadata: MetadataStore, tmp_path: Path
) -> None:
    metadata.record_state(
        JOB,
        identity="i",
        state="Created",
        cause="",
        generation=1,
        sql="CREATE TABLE t (a INT) WITH (password = 'hunter2', token = '${env:TOKEN}')",
        now=NOW,
    )
    kept = "CREATE TABLE t (a INT) WITH (password = '***', token = '${env:TOKEN}')"
    assert metadata.sql(JOB) == kept
    assert stored_sql(tmp_path / "folder" / "metadata.db", JOB) == kept
    files = (tmp_path / "folder").iterdir()
    assert not any(b"hunter2" in each.read_bytes() for each in files)
