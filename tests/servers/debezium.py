"""Debezium's Postgres connector in a worker of Kafka Connect, from its Maven artifacts."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from resurgence.engine.spark.java import find_java
from tests.servers.builds import maven_jars
from tests.servers.kafka import KafkaBroker
from tests.servers.postgres_proxy import postgres_proxy
from tests.servers.process import ServerProcess, free_port

_DEBEZIUM = [
    "io.debezium:debezium-connector-postgres:3.6.1.Final",
    "org.apache.kafka:connect-runtime:4.1.0",
    "org.apache.kafka:connect-json:4.1.0",
    "org.slf4j:slf4j-simple:1.7.36",
]
_DEADLINE = 90.0


def build() -> Path:
    """Return the folder of jars, installed if necessary."""
    return maven_jars("debezium", _DEBEZIUM)


@contextmanager
def captured(url: str, table: str, broker: KafkaBroker, has_schemas: bool) -> Iterator[str]:
    """Capture the changes of a table of schema `public` to a topic, from its snapshot on. Yields the
    topic. `has_schemas`: messages carry their schema, as is Kafka Connect's default.
    """
    database, folder = url.split("?host=")
    prefix = f"cdc{uuid.uuid4().hex[:8]}"
    with (
        postgres_proxy(f"{folder}/.s.PGSQL.5432") as proxy,
        tempfile.TemporaryDirectory(prefix="debezium-") as scratch,
    ):
        worker = {
            "bootstrap.servers": broker.bootstrap,
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": str(has_schemas).lower(),
            "value.converter.schemas.enable": str(has_schemas).lower(),
            "offset.storage.file.filename": f"{scratch}/offsets",
            "offset.flush.interval.ms": "1000",
            "listeners": f"http://127.0.0.1:{free_port()}",
            "plugin.path": "",
        }
        connector = {
            "name": prefix,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(proxy.port),
            "database.user": "postgres",
            "database.password": "any",
            "database.dbname": database.rsplit("/", 1)[1],
            "topic.prefix": prefix,
            "plugin.name": "pgoutput",
            "slot.name": prefix,
            "publication.name": prefix,
            "publication.autocreate.mode": "filtered",
            "table.include.list": f"public.{table}",
            "skipped.operations": "none",
            "decimal.handling.mode": "precise" if has_schemas else "string",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "1",
        }
        files = {"worker": worker, "connector": connector}
        paths = [_written(Path(scratch) / name, each) for name, each in files.items()]
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{build()}/*"]
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        process = ServerProcess(
            [find_java().executable, *options, main, *map(str, paths)], Path(scratch)
        )
        try:
            topic = f"{prefix}.public.{table}"
            _wait_for(topic, broker, process)
            yield topic
        finally:
            process.kill()
            _drop_slot(url, prefix)


def _written(path: Path, properties: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return path


def _wait_for(topic: str, broker: KafkaBroker, process: ServerProcess) -> None:
    give_up_at = time.monotonic() + _DEADLINE
    while topic not in broker.admin().list_topics(timeout=10).topics:
        assert process.is_alive(), process.last_words()
        assert time.monotonic() < give_up_at, f"no topic {topic}: {process.last_words()}"
        time.sleep(0.2)


def _drop_slot(url: str, slot: str) -> None:
    """A database with a slot cannot be dropped."""
    give_up_at = time.monotonic() + _DEADLINE
    with psycopg.connect(url, autocommit=True) as connection:
        while time.monotonic() < give_up_at:
            with suppress(psycopg.errors.ObjectInUse, psycopg.errors.UndefinedObject):
                connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])
            if not connection.execute(
                "SELECT FROM pg_replication_slots WHERE slot_name = %s", [slot]
            ).fetchall():
                return
            time.sleep(0.1)
