"""Parts of a Kafka sink: bounded in bytes, in order; and messages that point into Arrow's memory."""

from __future__ import annotations

import ctypes
import itertools

import pyarrow as pa
import pytest

from resurgence.connectors.kafka.topics import MessageLimit
from resurgence.connectors.kafka.writing.librdkafka import message_array
from resurgence.connectors.kafka.writing.parts import (
    Part,
    bounded,
    encoded,
    lanes_of,
    most_lanes,
    read_part,
    require_fitting,
)
from resurgence.errors import MessageRefused
from resurgence.storage.object_store import ObjectStore


def batch(*values: bytes | None) -> pa.RecordBatch:
    keys = pa.array([None if each is None else each[:1] for each in values], pa.binary())
    return pa.RecordBatch.from_arrays([keys, pa.array(values, pa.binary())], ["key", "value"])


def test_parts_are_bounded_in_bytes_and_rows_and_keep_the_order() -> None:
    batches = [batch(b"1111", b"22", b"3"), batch(), batch(b"444444444"), batch(b"5", b"6", b"7")]
    parts = [*bounded(iter(batches), most_bytes=8, most_rows=2)]
    values = [[each for piece in part for each in piece["value"].to_pylist()] for part in parts]
    assert values == [[b"1111", b"22"], [b"3"], [b"444444444"], [b"5", b"6"], [b"7"]]


def test_a_message_above_a_limit_that_is_assumed_names_the_missing_permission() -> None:
    large = batch(b"1" * 2000)
    require_fitting(large, MessageLimit(3000, is_known=True))
    with pytest.raises(MessageRefused, match="but the topic accepts 1000") as refused:
        require_fitting(large, MessageLimit(1000, is_known=True))
    assert "max.message.bytes" in refused.value.hint
    with pytest.raises(MessageRefused, match="the limit of the topic is unknown") as refused:
        require_fitting(batch(b"1" * 1_000_000), MessageLimit())
    assert "DescribeConfigs" in refused.value.hint


def test_the_number_of_a_lane_depends_on_the_list_of_parts_alone() -> None:
    first = [Part("a/1-1-00004-00000-x", 1), Part("a/1-1-00004-00001-y", 1)]
    second, other = [Part("a/1-1-00007-00000-z", 1)], [Part("b/1-1-00004-00000-w", 1)]
    assert lanes_of([*first, *second, *other]) == (tuple(first), tuple(second), tuple(other))


def test_a_part_is_read_as_it_was_written_up_to_its_rows() -> None:
    store = ObjectStore("memory:///")
    store.create("part", encoded([batch(b"a", None), batch(b"b")]))
    assert read_part(store, Part("part", 3))["value"].to_pylist() == [b"a", None, b"b"]
    assert read_part(store, Part("part", 2))["value"].to_pylist() == [b"a", None]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_messages_point_to_the_values_of_sliced_columns(kind: pa.DataType) -> None:
    values = [b"skipped", b"abc", None, b"", b"de", b"skipped"]
    column = pa.array(values, kind).slice(1, 4)
    messages = message_array(column, column, pa.array([0, 1, 2, 3], pa.int32()))
    for name, length in (("payload", "len"), ("key", "key_len")):
        read = [
            ctypes.string_at(int(each[name]), int(each[length])) if each[name] else None
            for each in messages
        ]
        assert read == values[1:5]
    assert messages["partition"].tolist() == messages["private"].tolist() == [0, 1, 2, 3]


def test_values_without_bytes_are_not_tombstones() -> None:
    messages = message_array(pa.array([b"", b""], pa.binary()), None, None)
    assert all(int(each) for each in itertools.chain(messages["payload"]))
    assert messages["partition"].tolist() == [-1, -1]


def test_an_epoch_has_no_more_lanes_than_first_parts_of_one_attempt() -> None:
    def staged(attempt: str, *parts: tuple[int, int]) -> list[str]:
        return [f"staged/{attempt}-{lane:05}-{number:05}-9f86d0" for lane, number in parts]

    first = staged("0000000004-1", (0, 0), (0, 1), (3, 0), (3, 1), (3, 2))
    repeated = staged("0000000005-2", (0, 0), (1, 0), (1, 0))
    assert most_lanes(first) == 2
    assert most_lanes([*first, *repeated]) == 3
    assert most_lanes([]) == 0
