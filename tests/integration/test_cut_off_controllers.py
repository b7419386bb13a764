"""A controller that the network cuts off: from the database, from the storage, from its workers. It
runs in a network namespace whose links are cut; the two others run outside of it, and cannot kill its
workers. So those are fenced.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.integration.controllers import (
    BUSY_SECONDS,
    JOBS,
    LEASE_SECONDS,
    Process,
    Stage,
    staged,
)
from tests.namespaces import Namespace
from tests.servers.s3 import S3Server


@pytest.fixture
def stage(
    tmp_path: Path,
    postgres_url: str,
    s3_server: S3Server,
    s3_url: str,
    victim_namespace: Namespace,
) -> Iterator[Stage]:
    """The first controller is in the namespace. Each has its own folder, as on its own machine."""
    with psycopg.connect(postgres_url) as connection:
        info = connection.info
        socket_file = f"{info.host}/.s.PGSQL.{info.port}"
        database = info.dbname

    def connect_database() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(socket_file)
        return connection

    def connect_storage() -> socket.socket:
        return socket.create_connection(("127.0.0.1", s3_server.port))

    host, port = victim_namespace.link("database", connect_database)
    endpoint = "http://{}:{}".format(*victim_namespace.link("storage", connect_storage))
    folders = [tmp_path / each for each in ("victim", "second", "third")]
    for each in folders:
        each.mkdir()
    victim = Process(
        folders[0],
        f"postgresql://postgres@{host}:{port}/{database}",
        s3_url,
        prefix=victim_namespace.prefix,
        variables={"AWS_ENDPOINT": endpoint},
    )
    victim.reached_at = victim_namespace.expose(victim.port)
    others = [Process(each, postgres_url, s3_url) for each in folders[1:]]
    with staged(Stage(tmp_path, postgres_url, s3_url, [victim, *others])) as opened:
        yield opened


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_jobs_of_a_controller_that_is_cut_off_are_taken_over(
    stage: Stage, victim_namespace: Namespace
) -> None:
    victim, second, third = stage.processes
    for link in ("database", "storage"):
        require_take_over(stage, victim_namespace, link)
    # The logs of each controller are in its own folder.
    (job, *_) = stage.owned_by(third)
    assert "this is worker" in second.request("GET", f"/v1/jobs/{job}/logs").text
    assert not list((second.folder / ".resurgence").rglob(f"*{job}*/*.log"))
    # The victim is reached on its loopback address only: the others cannot ask it.
    answer = second.call("GET", "/v1/workers")
    assert sorted({each["job"] for each in answer["workers"]}) == sorted(
        set(JOBS) - set(stage.owned_by(victim))
    )
    assert answer["unreachable"] == [f"http://127.0.0.1:{victim.port}"]
    stage.require_one_owner_per_epoch()


def require_take_over(stage: Stage, namespace: Namespace, link: str) -> None:
    """The first controller loses its jobs by a cut, and has a share again after it."""
    before, its_jobs = stage.statuses(), stage.owned_by(stage.processes[0])
    namespace.cut(link)
    took = stage.until(lambda: stage.is_spread(2), f"without {link}: the others have its jobs")
    assert took < LEASE_SECONDS + BUSY_SECONDS
    stage.until(lambda: stage.run_anew(its_jobs, before), "they run them")
    stage.advance("all jobs go on")
    namespace.restore(link)
    stage.until(lambda: stage.is_settled(3), f"with {link}: it has a share again")
    stage.advance("all jobs go on")
    assert "Failed" not in [event["to"] for event in stage.events("state")]


@pytest.mark.long
def test_a_controller_that_is_cut_off_from_its_workers_replaces_them(
    stage: Stage, victim_namespace: Namespace
) -> None:
    (victim, *_), owners = stage.processes, stage.owners()
    its_jobs = stage.owned_by(victim)
    before = stage.statuses()
    victim_namespace.cut("lo")
    stage.until(lambda: bool(stage.events("failure")), "it misses their heartbeats")
    victim_namespace.restore("lo")
    stage.until(lambda: stage.run_anew(its_jobs, before), "it has replaced them")
    stage.advance("all jobs go on")
    assert "worker_timedout" in {each["kind"] for each in stage.events("failure")}
    assert stage.owners() == owners
    assert [job for job in JOBS if stage.statuses()[job] != before[job]] == its_jobs
    stage.require_one_owner_per_epoch()
