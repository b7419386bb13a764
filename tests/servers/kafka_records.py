"""Records of topics: produced and read by librdkafka, and read by the Java client."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

_DEADLINE = 60.0
_FIELD, _RECORD, _NULL = "\x1f", "\x1e", "\x15"


@dataclass(frozen=True)
class Record:
    """A record to produce (partition -1: by its key), or one that was read."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    """Milliseconds; None: now."""
    partition: int = -1
    offset: int = -1


def produce(
    settings: Mapping[str, Any], topic: str, records: Iterable[bytes | Record | tuple[Any, ...]]
) -> None:
    """Produce values, `(key, value, ...)` as in `Record`, or records; all of them are stored."""
    producer = Producer({"linger.ms": 0, **settings})
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for each in records:
        record = _record(each)
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            partition=record.partition,
            headers=list(record.headers),
            timestamp=record.timestamp or 0,  # 0: now
            on_delivery=delivered,
        )
        producer.poll(0)
    left = producer.flush(_DEADLINE)
    if failures:
        raise KafkaException(failures[0])
    assert left == 0, f"{left} records were not acknowledged within {_DEADLINE:g} s"


def read(
    settings: Mapping[str, Any], topic: str, isolation: str = "read_committed"
) -> list[Record]:
    """The records from the first to the end, or to the first open transaction: by partition."""
    consumer = Consumer(
        {
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,  # the end of a partition is reported after this wait
            **settings,
        }
    )
    try:
        partitions = consumer.list_topics(topic, _DEADLINE).topics[topic].partitions
        starts = [TopicPartition(topic, number) for number in partitions]
        for start in starts:
            start.offset, _ = consumer.get_watermark_offsets(start, _DEADLINE)
        consumer.assign(starts)
        open_partitions, found = set(partitions), []
        give_up_at = time.monotonic() + _DEADLINE
        while open_partitions:
            assert time.monotonic() < give_up_at, f"{topic}: no end of {open_partitions}"
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    found.append(_read_record(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return sorted(found, key=lambda record: (record.partition, record.offset))


def read_by_java(
    java: Sequence[str], bootstrap: str, topic: str, isolation: str, silence: float
) -> list[Record]:
    """What Kafka's console consumer prints until it has waited `silence` seconds. Headers and
    timestamps are not read.
    """
    printed = {"partition": True, "offset": True, "key": True, "value": True, "timestamp": False}
    properties = {
        **{f"print.{name}": str(on).lower() for name, on in printed.items()},
        "key.separator": _FIELD,
        "line.separator": _RECORD,
        "null.literal": _NULL,
    }
    done = subprocess.run(
        [
            *java,
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
            *("--isolation-level", isolation, "--timeout-ms", str(round(silence * 1000))),
            *(part for pair in properties.items() for part in ("--property", "=".join(pair))),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_DEADLINE,
        check=False,
    )
    # It reports its own time-out, which is how it ends, as an error.
    if b"Processed a total of" not in done.stderr:
        raise AssertionError(done.stderr.decode(errors="replace")[-2000:])
    lines = done.stdout.decode("latin-1").split(_RECORD)[:-1]
    records = [_printed_record(line) for line in lines]
    return sorted(records, key=lambda record: (record.partition, record.offset))


def _record(given: bytes | Record | tuple[Any, ...]) -> Record:
    if isinstance(given, Record):
        return given
    if isinstance(given, bytes):
        return Record(given)
    key, value, *rest = given
    return Record(value, key, *rest)


def _read_record(message: Message) -> Record:
    kind, timestamp = message.timestamp()
    return Record(
        value=message.value(),
        key=message.key(),
        headers=tuple(cast("list[tuple[str, bytes | None]]", message.headers() or [])),
        timestamp=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        partition=message.partition() or 0,
        offset=message.offset() or 0,
    )


def _printed_record(line: str) -> Record:
    partition, offset, key, value = line.split(_FIELD)
    return Record(
        value=None if value == _NULL else value.encode("latin-1"),
        key=None if key == _NULL else key.encode("latin-1"),
        partition=int(partition.removeprefix("Partition:")),
        offset=int(offset.removeprefix("Offset:")),
    )
