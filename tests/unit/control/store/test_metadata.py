"""The metadata database: one contract, on SQLite and on Postgres."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.postgres import PostgresServer

from resurgence.control.jobs.job_record import (
    DesiredConfig,
    JobBeingDeleted,
    JobRecord,
    JobStatus,
    PipelineRecord,
    WorkerRecord,
    deleted,
    rescaled,
)
from resurgence.control.jobs.transitions import StateName
from resurgence.control.store import database
from resurgence.control.store.metadata import (
    ApiKey,
    JobExists,
    KeyExists,
    KeyRole,
    MetadataStore,
    NoSuchJob,
    stored_sql,
)
from resurgence.control.store.schema import SCHEMA_VERSION
from resurgence.control.telemetry.events import Event
from resurgence.errors import ConfigError, StorageError, UserError
from resurgence.ids import Generation, JobName, WorkerId

JOB, OTHER = JobName("rides"), JobName("other")
NOW = datetime(2030, 1, 1, 12, 30, 15, 123456, tzinfo=UTC)
SECRET_SQL = "CREATE TABLE t (a INT) WITH (password = 'hunter2', token = '${env:TOKEN}')"
MASKED_SQL = "CREATE TABLE t (a INT) WITH (password = '***', token = '${env:TOKEN}')"
FULL_STATUS = JobStatus(
    state=StateName.RUNNING,
    cause="the worker – 'a' – said so",
    run=3,
    reset_run=2,
    generation=Generation(7),
    identity="abc",
    worker=WorkerRecord(WorkerId("w7"), Generation(7), 4711, "digest"),
    failure={"error": "no\0such \ud800 file", "times": 3, "tried": ["restart", None]},
    history={"restarts_left": 19},
    changed_at=NOW,
)


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/metadata.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def metadata(database_url: str) -> Iterator[MetadataStore]:
    with closing(MetadataStore(database_url)) as store:
        yield store


def job(name: JobName = JOB, *, sql: str = "SELECT 1") -> JobRecord:
    return JobRecord(
        name=name,
        pipeline=PipelineRecord(
            sql, "s3://bucket/state", "def f(): ...", {"pipeline.parallelism": "4"}
        ),
        desired=DesiredConfig(parallelism=4),
        status=JobStatus(),
        created_at=NOW,
    )


def event(kind: str, at: int) -> Event:
    facts: Event = {"event": kind, "at": str(at)}
    return {**facts, "detected_at": str(at - 1)} if kind == "incident" else facts


def times(events: list[Event]) -> list[object]:
    return [each["at"] for each in events]


# Jobs


def test_a_job_is_read_back_as_it_was_stored(metadata: MetadataStore) -> None:
    record = replace(job(sql=SECRET_SQL), status=FULL_STATUS)
    assert metadata.job(JOB) is None
    metadata.create_job(record)
    metadata.create_job(job(OTHER))
    assert metadata.job(JOB) == record
    assert metadata.jobs() == [job(OTHER), record]


def test_a_name_is_taken_once(metadata: MetadataStore) -> None:
    metadata.create_job(job())
    with pytest.raises(JobExists, match="job 'rides' already exists") as caught:
        metadata.create_job(job(sql="SELECT 2"))
    assert caught.value.code == "job.exists"
    assert metadata.jobs() == [job()]


def test_a_job_that_is_put_replaces_all_but_its_history(metadata: MetadataStore) -> None:
    metadata.put_job(replace(job(), status=FULL_STATUS))
    metadata.record_events([(JOB, event("incident", 1))])
    again = JobRecord(
        JOB, PipelineRecord("SELECT 2", "elsewhere"), DesiredConfig(1), JobStatus(), NOW
    )
    metadata.put_job(again)
    assert metadata.jobs() == [again]
    assert times(metadata.incidents(JOB)) == ["1"]


def test_a_job_that_is_put_is_kept_without_its_literal_secrets(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "metadata.db"
    pipeline = PipelineRecord(
        SECRET_SQL,
        "s3://me:hunter2@host/bucket",
        settings={"spark.s3.secret.key": "hunter2", "checkpoint.keep": "3"},
    )
    with closing(MetadataStore(path)) as store:
        store.put_job(replace(job(), pipeline=pipeline))
        assert not any(b"hunter2" in each.read_bytes() for each in path.parent.iterdir())
    assert stored_sql(path, JOB) == MASKED_SQL
    assert stored_sql(path, OTHER) is None
    assert stored_sql(tmp_path / "nowhere.db", JOB) is None


def test_a_database_file_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "state" / ".service"
    with closing(MetadataStore(folder / "metadata.db")) as store:
        store.create_job(job(sql=SECRET_SQL))
        modes = {each.name: each.stat().st_mode & 0o777 for each in folder.iterdir()}
    assert set(modes.values()) == {0o600}, modes
    assert {each.stat().st_mode & 0o777 for each in (folder, folder.parent)} == {0o700}


@pytest.mark.parametrize("replaced", [False, True])
def test_a_moved_database_file_refuses_writes_until_it_is_restored(
    tmp_path: Path, replaced: bool
) -> None:
    path, elsewhere = tmp_path / "metadata.db", tmp_path / "elsewhere.db"
    with closing(MetadataStore(path)) as store:
        store.create_job(job())
        assert store.hold()
        path.rename(elsewhere)
        if replaced:
            path.touch()
        for call in (
            lambda: store.create_job(job(OTHER)),
            store.jobs,
            store.require_writable,
            store.still_holds,
        ):
            with pytest.raises(database.DatabaseFileGone) as caught:
                call()
            assert caught.value.code == "storage.database_gone"
            assert str(path) in caught.value.message
            assert "Move the file back" in caught.value.hint
        assert path.exists() == replaced, "no empty database is created in its place"
        elsewhere.replace(path)
        store.require_writable()
        store.create_job(job(OTHER))
        assert len(store.jobs()) == 2
        assert store.still_holds()


def test_a_deleted_database_file_refuses_writes(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    with closing(MetadataStore(path)) as store:
        path.unlink()
        with pytest.raises(database.DatabaseFileGone, match="moved or deleted"):
            store.create_job(job())


def test_a_database_that_is_written_is_writable(metadata: MetadataStore) -> None:
    metadata.require_writable()
    metadata.require_writable()
    assert metadata.jobs() == []


def test_a_database_that_refuses_a_commit_is_not_writable(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    with closing(MetadataStore(path)) as store, closing(sqlite3.connect(path)) as other:
        other.execute(
            "CREATE TRIGGER full BEFORE INSERT ON service_values "
            "BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
        )
        with pytest.raises(StorageError, match="disk is full"):
            store.require_writable()


def test_a_change_of_the_desired_state_keeps_the_status(metadata: MetadataStore) -> None:
    metadata.create_job(job())
    metadata.record_status(JOB, FULL_STATUS)
    seen: list[JobRecord] = []

    def change(record: JobRecord) -> DesiredConfig:
        seen.append(record)
        return rescaled(record.desired, 8)

    changed = metadata.change_desired(JOB, change, NOW + timedelta(hours=1))
    assert seen == [replace(job(), status=FULL_STATUS)]
    assert changed == replace(seen[0], desired=DesiredConfig(parallelism=8), revision=1)
    assert metadata.job(JOB) == changed


def test_a_pipeline_can_change_together_with_the_desired_state(metadata: MetadataStore) -> None:
    metadata.create_job(job())
    edited = PipelineRecord(SECRET_SQL, "s3://bucket/state")
    changed = metadata.change_desired(JOB, lambda record: record.desired, NOW, edited)
    assert changed.pipeline == edited
    assert metadata.job(JOB) == changed


def test_a_change_that_is_refused_changes_nothing(metadata: MetadataStore) -> None:
    metadata.create_job(job())
    gone = metadata.change_desired(JOB, lambda old: deleted(old.desired, with_state=True), NOW)
    with pytest.raises(JobBeingDeleted):
        metadata.change_desired(
            JOB, lambda old: rescaled(old.desired, 9), NOW, PipelineRecord("SELECT 2", "")
        )
    assert metadata.job(JOB) == gone


def test_a_job_that_is_unknown_cannot_be_changed(metadata: MetadataStore) -> None:
    with pytest.raises(NoSuchJob, match="job 'rides' does not exist") as caught:
        metadata.change_desired(JOB, lambda record: record.desired, NOW)
    assert caught.value.code == "job.unknown"


def test_concurrent_changes_are_all_stored(metadata: MetadataStore) -> None:
    metadata.create_job(job())
    threads, changes = 8, 20
    together = threading.Barrier(threads)

    def change_often() -> None:
        together.wait(10)
        for _ in range(changes):
            metadata.change_desired(
                JOB, lambda record: replace(record.desired, run=record.desired.run + 1), NOW
            )

    with ThreadPoolExecutor(threads) as pool:
        for each in [pool.submit(change_often) for _ in range(threads)]:
            each.result(60)
    record = metadata.job(JOB)
    assert record is not None
    assert record.desired.run == 1 + threads * changes


def test_a_change_of_the_status_keeps_the_desired_state(metadata: MetadataStore) -> None:
    metadata.create_job(job())
    metadata.record_status(JOB, FULL_STATUS)
    assert metadata.job(JOB) == replace(job(), status=FULL_STATUS)


def test_the_status_of_a_deleted_job_is_not_stored(metadata: MetadataStore) -> None:
    metadata.create_job(job())
    metadata.delete_job(JOB)
    metadata.record_status(JOB, FULL_STATUS)
    assert metadata.jobs() == []
    metadata.create_job(job())
    assert metadata.job(JOB) == job()


def test_a_superseded_generation_does_not_write_the_status(metadata: MetadataStore) -> None:
    metadata.create_job(job())
    metadata.record_status(JOB, FULL_STATUS)
    failed = replace(FULL_STATUS, state=StateName.FAILED)
    metadata.record_status(JOB, replace(failed, generation=Generation(6)))
    assert metadata.job(JOB) == replace(job(), status=FULL_STATUS)
    for later in (
        replace(failed, generation=Generation(7)),
        replace(failed, generation=Generation(8)),
        JobStatus(),
        replace(FULL_STATUS, identity="another state", generation=Generation(1)),
    ):
        metadata.record_status(JOB, later)
        assert metadata.job(JOB) == replace(job(), status=later)


def test_a_cause_may_contain_characters_that_databases_refuse(metadata: MetadataStore) -> None:
    metadata.create_job(job())
    metadata.record_status(JOB, JobStatus(cause="cannot read a\0b\ud800"))
    record = metadata.job(JOB)
    assert record is not None
    assert record.status.cause == "cannot read a\ufffdb?"


def test_a_value_that_does_not_fit_is_refused(metadata: MetadataStore) -> None:
    with pytest.raises(UserError, match="cannot store this value"):
        metadata.create_job(job(sql="SELECT '\ud800'"))
    assert metadata.jobs() == []


def test_a_job_is_deleted_with_its_history_and_no_other_one(metadata: MetadataStore) -> None:
    for name in (JOB, OTHER):
        metadata.create_job(job(name))
        metadata.record_events([(name, event("incident", 1))])
    metadata.delete_job(JOB)
    metadata.delete_job(JOB)
    assert [each.name for each in metadata.jobs()] == [OTHER]
    assert [each["job"] for each in metadata.incidents()] == [OTHER]
    assert metadata.events(JOB) == []
    assert len(metadata.events(OTHER)) == 1


def test_a_new_job_has_no_history_of_one_that_had_its_name(metadata: MetadataStore) -> None:
    metadata.create_job(job())
    metadata.delete_job(JOB)
    metadata.record_events([(JOB, event("incident", 1))])
    metadata.create_job(job())
    assert (metadata.events(JOB), metadata.incidents(JOB)) == ([], [])


# History


def test_events_are_returned_in_order_and_page_by_page(metadata: MetadataStore) -> None:
    assert metadata.last_event_id(JOB) == 0
    metadata.record_events([])
    metadata.record_events([(JOB, event("state", at)) for at in range(5)])
    metadata.record_events([(OTHER, event("state", 9)), (JOB, event("failure", 5))])
    first = metadata.events(JOB, limit=4)
    rest = metadata.events(JOB, after=first[-1].id)
    assert [each.event["at"] for each in first + rest] == ["0", "1", "2", "3", "4", "5"]
    assert rest[-1].event == event("failure", 5)
    ids = [each.id for each in first + rest]
    assert ids == sorted(set(ids))
    assert metadata.last_event_id(JOB) == ids[-1]
    assert metadata.events(JOB, after=ids[-1]) == []


def test_the_newest_events_are_found_by_job_kind_text_and_place(metadata: MetadataStore) -> None:
    metadata.record_events([(JOB, event("state", at)) for at in range(3)])
    metadata.record_events([(OTHER, {**event("failure", 9), "error": "100% of_it"})])

    def found(job: JobName | None, **conditions: Any) -> list[tuple[JobName, object]]:
        chosen = {"kind": "", "text": "", **conditions}
        return [(name, each.event["at"]) for name, each in metadata.newest_events(job, **chosen)]

    assert found(None) == [(OTHER, "9"), (JOB, "2"), (JOB, "1"), (JOB, "0")]
    assert found(None, limit=1) == [(OTHER, "9")]
    assert found(JOB, limit=2) == [(JOB, "2"), (JOB, "1")]
    second = metadata.newest_events(JOB, limit=2, kind="", text="")[-1][1].id
    assert found(JOB, before=second) == [(JOB, "0")]
    assert found(None, kind="failure") == [(OTHER, "9")]
    assert found(None, text="% OF_") == [(OTHER, "9")]
    assert found(None, text="%state_") == []


def test_news_are_of_jobs_with_new_events_and_of_deleted_jobs(metadata: MetadataStore) -> None:
    for name in (JOB, OTHER):
        metadata.create_job(job(name))
    metadata.record_events([(JOB, event("state", 1)), (OTHER, event("state", 2))])
    last = metadata.last_event_id()
    assert metadata.news([JOB, OTHER], last) == (last, set())
    metadata.record_events([(OTHER, event("state", 3))])
    newest = metadata.last_event_id()
    assert newest > last
    assert metadata.news([JOB, OTHER], last) == (newest, {OTHER})
    assert metadata.news([JOB], last) == (newest, set())
    metadata.delete_job(JOB)
    assert metadata.news([JOB, OTHER], newest) == (newest, {JOB})


def test_ids_of_events_are_never_used_again(metadata: MetadataStore) -> None:
    metadata.record_events([(JOB, event("state", at)) for at in range(3)])
    newest = metadata.last_event_id(JOB)
    metadata.delete_job(JOB)
    metadata.record_events([(JOB, event("state", 4))])
    assert metadata.last_event_id(JOB) > newest


def test_a_reader_misses_no_event_while_many_write(metadata: MetadataStore) -> None:
    writers, batches = 6, 15
    together = threading.Barrier(writers + 1)

    def write(writer: int) -> None:
        together.wait(10)
        for batch in range(batches):
            at = writer * 1000 + batch * 2
            metadata.record_events([(JOB, event("state", at)), (JOB, event("state", at + 1))])

    seen: list[object] = []
    with ThreadPoolExecutor(writers) as pool:
        writing = [pool.submit(write, each) for each in range(writers)]
        together.wait(10)
        after, done = 0, False
        while not done:
            done = all(each.done() for each in writing)
            for each in metadata.events(JOB, after=after):
                after = each.id
                seen.append(each.event["at"])
        for written in writing:
            written.result()
    assert len(seen) == len(set(seen)) == writers * batches * 2


def test_incidents_are_kept_apart_from_other_events(metadata: MetadataStore) -> None:
    metadata.record_events(
        [
            (JOB, event("failure", 1)),
            (JOB, event("incident", 2)),
            (OTHER, event("incident", 3)),
            (JOB, event("incident", 4)),
        ]
    )
    assert metadata.incidents(JOB)[0] == {**event("incident", 2), "job": JOB}
    assert times(metadata.incidents(JOB)) == ["2", "4"]
    assert times(metadata.incidents()) == ["2", "3", "4"]
    assert times(metadata.incidents(limit=2)) == ["3", "4"]


def test_the_newest_events_of_each_job_are_kept_and_all_incidents(metadata: MetadataStore) -> None:
    metadata.record_events([(OTHER, event("incident", 0)), (OTHER, event("state", 1))])
    metadata.record_events([(JOB, event("incident", at)) for at in range(6)])
    metadata.prune(1, [OTHER])
    assert len(metadata.events(JOB)) == 6
    assert [each.event["at"] for each in metadata.events(OTHER)] == ["1"]
    metadata.prune(2, [JOB, OTHER])
    assert [each.event["at"] for each in metadata.events(JOB)] == ["4", "5"]
    assert [each.event["at"] for each in metadata.events(OTHER)] == ["1"]
    assert len(metadata.incidents()) == 7


# Keys and values of the service


def test_keys_are_added_listed_and_removed(metadata: MetadataStore) -> None:
    watch = ApiKey("watch", KeyRole.READ, "d1", NOW)
    operate = ApiKey("operate", KeyRole.WRITE, "d2", NOW)
    metadata.add_key(watch)
    metadata.add_key(operate)
    assert metadata.keys() == [operate, watch]
    with pytest.raises(KeyExists, match="key 'watch' already exists"):
        metadata.add_key(replace(watch, role=KeyRole.WRITE))
    assert metadata.remove_key("watch")
    assert not metadata.remove_key("watch")
    assert metadata.keys() == [operate]


def test_an_imported_key_replaces_the_one_of_that_name(metadata: MetadataStore) -> None:
    imported = ApiKey("watch", KeyRole.WRITE, "d2", NOW)
    metadata.add_key(ApiKey("watch", KeyRole.READ, "d1", NOW))
    metadata.put_key(imported)
    metadata.put_key(imported)
    assert metadata.keys() == [imported]


def test_the_newest_value_is_kept(metadata: MetadataStore) -> None:
    assert metadata.value("port") is None
    metadata.put_value("port", "1")
    metadata.put_value("port", "2")
    assert metadata.value("port") == "2"


# Opening


def test_everything_is_read_back_after_reopening(database_url: str) -> None:
    with closing(MetadataStore(database_url)) as store:
        store.create_job(job())
    with closing(MetadataStore(database_url)) as store:
        assert store.jobs() == [job()]


def test_a_new_database_can_be_opened_concurrently(database_url: str) -> None:
    together = threading.Barrier(6)

    def open_it() -> None:
        together.wait(10)
        with closing(MetadataStore(database_url)) as store:
            store.put_value("opened", "yes")

    with ThreadPoolExecutor(6) as pool:
        for each in [pool.submit(open_it) for _ in range(6)]:
            each.result(30)


def test_a_creation_that_fails_leaves_the_database_as_it_was(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("resurgence.control.store.schema.SCHEMA_VERSION", None)
        with pytest.raises(StorageError, match="cannot open the metadata database"):
            MetadataStore(database_url)
    with closing(MetadataStore(database_url)) as store:
        assert store.jobs() == []


def test_a_database_of_another_release_is_refused(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    MetadataStore(database_url).close()
    monkeypatch.setattr("resurgence.control.store.schema.SCHEMA_VERSION", SCHEMA_VERSION - 1)
    with pytest.raises(ConfigError, match="but this release requires") as caught:
        MetadataStore(database_url)
    assert caught.value.hint == "Use the release that created it, or another database."


def test_a_database_of_another_application_is_not_changed(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as theirs:
        theirs.execute("CREATE TABLE jobs (id INTEGER, salary INTEGER)")
    with pytest.raises(ConfigError, match="of another application"):
        MetadataStore(tmp_path / "theirs.db")


def test_the_hint_for_an_unreadable_database_is_to_move_it_away(tmp_path: Path) -> None:
    (tmp_path / "metadata.db").write_bytes(b"this is not a database, but it is long enough" * 9)
    with pytest.raises(StorageError, match="cannot open the metadata database") as caught:
        MetadataStore(tmp_path / "metadata.db")
    assert "Move the file away" in caught.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "hunter2",
        "mysql://me:hunter2@host/db",
        "postgresql://me:hun@ter2@host/db",
        "postgresql://me:hunter2@host:port/db",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file.db?mode=ro",
    ],
)
def test_an_invalid_url_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        MetadataStore(url)
    assert "ter2" not in caught.value.message
    assert caught.value.hint
    assert caught.value.__cause__ is None


def test_postgres_without_its_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match="psycopg") as caught:
        MetadataStore("postgresql://localhost/db")
    assert caught.value.hint == "Install it with pip install 'resurgence[postgres]'."


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_spelling_of_a_postgres_url_is_accepted(postgres_url: str, scheme: str) -> None:
    with closing(MetadataStore(postgres_url.replace("postgresql", scheme, 1))) as store:
        assert store.jobs() == []


# Failures


def test_no_password_is_in_the_text_of_a_failure(tmp_path: Path) -> None:
    url = f"postgresql://me:hunter2@/db?host={tmp_path}&sslpassword=hunter3"
    with pytest.raises(StorageError, match="cannot open the metadata database") as caught:
        MetadataStore(url)
    text = f"{caught.value.message} {caught.value.hint} {caught.value.__cause__}"
    assert "postgresql://me@/db" in text
    assert "hunter" not in text


def damage_sqlite(url: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("UPDATE statuses SET state = 'Confused'")


def damage_postgres(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE statuses SET state = 'Confused'")


def test_a_record_that_cannot_be_read_is_a_failure_of_the_database(
    metadata: MetadataStore, database_url: str
) -> None:
    metadata.create_job(job())
    damage: Callable[[str], None] = (
        damage_sqlite if database_url.startswith("sqlite") else damage_postgres
    )
    damage(database_url)
    with pytest.raises(StorageError, match="a record is malformed"):
        metadata.jobs()


def test_a_write_waits_for_another_process_until_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "STATEMENT_TIMEOUT", timedelta(seconds=0.2))
    path = tmp_path / "metadata.db"
    with closing(MetadataStore(path)) as store, closing(sqlite3.connect(path)) as other:
        store.create_job(job())
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="locked"):
            store.delete_job(JOB)
        assert store.jobs() == [job()]
        other.rollback()
        store.delete_job(JOB)


def test_waiting_for_a_lock_has_a_deadline(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "STATEMENT_TIMEOUT", timedelta(seconds=0.2))
    with closing(MetadataStore(postgres_url)) as store:
        store.create_job(job())
        with psycopg.connect(postgres_url) as other:
            other.execute("SELECT * FROM jobs FOR UPDATE")
            with pytest.raises(StorageError, match="statement timeout"):
                store.change_desired(JOB, lambda record: record.desired, NOW)
            other.rollback()
        store.change_desired(JOB, lambda record: record.desired, NOW)


def test_a_process_that_is_paused_in_a_transaction_loses_its_lock(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "STATEMENT_TIMEOUT", timedelta(seconds=0.2))
    with (
        closing(MetadataStore(postgres_url)) as store,
        psycopg.connect(postgres_url) as other,
    ):
        store.create_job(job())
        other.execute("SET statement_timeout = '10s'")

        def stand_still(record: JobRecord) -> DesiredConfig:
            other.execute("SELECT * FROM jobs FOR UPDATE")
            other.rollback()
            return rescaled(record.desired, 8)

        with pytest.raises(StorageError, match="the metadata database failed"):
            store.change_desired(JOB, stand_still, NOW)
        assert store.jobs() == [job()]


def test_a_lost_server_is_detected_and_used_again_when_it_is_available(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    with closing(MetadataStore(postgres_url)) as store:
        store.create_job(job())
        postgres_server.kill()
        began = time.monotonic()
        with pytest.raises(StorageError, match="the metadata database failed"):
            # What is left of the server may answer for some milliseconds.
            while time.monotonic() < began + 5:
                store.jobs()
        with pytest.raises(StorageError, match="the metadata database failed"):
            store.record_status(JOB, FULL_STATUS)
        with pytest.raises(StorageError, match="cannot open"):
            MetadataStore(postgres_url)
        assert time.monotonic() < began + 5
        postgres_server.start()
        store.record_status(JOB, FULL_STATUS)
        assert store.jobs() == [replace(job(), status=FULL_STATUS)]


def test_a_frozen_connection_is_replaced_by_a_new_one(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "ANSWER_TIMEOUT", timedelta(seconds=2))
    with closing(MetadataStore(postgres_url)) as store, psycopg.connect(postgres_url) as other:
        store.create_job(job())
        query = (
            "SELECT pid FROM pg_stat_activity "
            "WHERE application_name = 'resurgence' AND datname = current_database()"
        )
        frozen = [int(pid) for (pid,) in other.execute(query)]
        assert frozen
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            assert store.jobs() == [job()]
            assert time.monotonic() < began + 20
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)


def test_a_sqlite_file_has_one_service_at_a_time(tmp_path: Path) -> None:
    first, second = (MetadataStore(tmp_path / "metadata.db") for _ in range(2))
    assert not first.can_be_shared
    assert first.hold()
    assert not second.hold()
    first.close()
    assert second.hold()
    second.close()
