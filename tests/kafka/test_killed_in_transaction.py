"""`resurgence run` into Kafka, killed by SIGKILL in a transaction: its rows and its marker are in the
topics, and the broker was not told how it ends.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from resurgence.connectors.kafka.writing.lanes import TRANSACTION_SECONDS
from resurgence.connectors.kafka.writing.open_lanes import MOST_BYTES
from tests.integration.conftest import DEADLINE_SECONDS, QUICK, Project, settings
from tests.kafka.lossy_proxy import END_TXN, LossyProxy, lossy_proxy
from tests.servers.builds import NoServer
from tests.servers.kafka import KafkaBroker, running_broker

EPOCHS = 3
SQL = """
CREATE TABLE numbers WITH (
  connector = 'impulse', event_rate = '1000000', message_count = '{rows}');
CREATE TABLE out WITH (
  connector = 'kafka', type = 'sink', bootstrap_servers = '{bootstrap}', topic = '{topic}',
  'sink.marker_topic' = '{topic}-markers');
INSERT INTO out SELECT counter, {text} AS text FROM numbers;
"""
LONG_TEXT = "concat({})".format(
    ", ".join(f"sha2(concat(CAST(counter AS STRING), '{each}'), 512)" for each in "abcd")
)
"""Hashes are not compressed when they are staged."""


@pytest.fixture
def proxy() -> Iterator[LossyProxy]:
    with lossy_proxy() as proxy:
        yield proxy


@pytest.fixture
def broker(proxy: LossyProxy) -> Iterator[KafkaBroker]:
    """A broker that its clients reach through the proxy."""
    address = f"PLAINTEXT://127.0.0.1:{proxy.port}"
    try:
        with running_broker(properties={"advertised.listeners": address}) as broker:
            proxy.target = int(broker.bootstrap.rpartition(":")[2])
            yield broker
    except NoServer as error:
        pytest.skip(f"no Kafka server: {error}")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path)
    yield project
    project.close()


def staged_bytes(project: Project) -> int:
    staged = (project.folder / ".resurgence").rglob("staged/**/*")
    return sum(each.stat().st_size for each in staged if each.is_file())


@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    ("text", "epoch_rows", "by_tasks"),
    [("'x'", 200, False), (LONG_TEXT, 15_000, True)],
    ids=["by the driver", "by tasks"],
)
def test_a_worker_that_is_killed_in_a_transaction_is_restored_and_writes_each_row_once(
    broker: KafkaBroker,
    proxy: LossyProxy,
    project: Project,
    text: str,
    epoch_rows: int,
    by_tasks: bool,
) -> None:
    topic, rows = broker.create_topic(partitions=2), EPOCHS * epoch_rows
    sql = SQL.format(bootstrap=broker.bootstrap, topic=topic, rows=rows, text=text)
    (project.folder / "rides.sql").write_text(sql)
    proxy.hold(END_TXN, 2)
    running = project.start("--epoch-rows", str(epoch_rows), *settings(*QUICK))
    while not proxy.held.wait(0.1):
        assert running.poll() is None, running.communicate()
    assert (staged_bytes(project) > MOST_BYTES) == by_tasks
    produced = len(broker.read(topic, "read_uncommitted"))
    assert len(broker.read(topic)) < produced
    os.kill(project.events("worker_started")[-1]["pid"], signal.SIGKILL)

    _, errors = running.communicate(timeout=DEADLINE_SECONDS)
    assert running.returncode == 0, errors
    (failed,) = project.events("failure")
    assert failed["kind"] == "worker_exited"
    (incident,) = project.events("incident")
    assert incident["phases"]["restore"] < TRANSACTION_SECONDS / 2
    for records in (broker.read(topic), broker.read_by_java(topic)):
        found = [json.loads(each.value or b"")["counter"] for each in records]
        assert sorted(found) == list(range(rows))
