"""What a Kafka source reads next, from its position and from what the cluster holds."""

from __future__ import annotations

import pytest

from resurgence.connectors.kafka.reading.offsets import (
    Partition,
    Positions,
    TopicPosition,
    numbered,
)
from resurgence.connectors.kafka.reading.planning import (
    FIRST_ROWS,
    RecordSize,
    Topic,
    available,
    is_at_stop,
    reconciled,
    rotated,
    shares,
)
from resurgence.errors import UserError

A0, A1, B0 = Partition("a", 0), Partition("a", 1), Partition("b", 0)


def position(
    topics: dict[str, tuple[str, dict[int, int]]], stop: dict[str, dict[int, int]] | None = None
) -> Positions:
    return Positions(
        topics={
            name: TopicPosition(id=topic_id, partitions=partitions)
            for name, (topic_id, partitions) in topics.items()
        },
        stop=stop,
    )


def parts(rows: list[int]) -> dict[Partition, int]:
    return {Partition("t", number): count for number, count in enumerate(rows)}


def test_a_position_is_the_same_after_it_was_stored_as_json() -> None:
    before = position({"a": ("id", {0: 3, 10: 4}), "b": ("other", {})}, stop={"a": {0: 9}})
    offset = before.as_offset()
    assert offset == {
        "topics": {
            "a": {"id": "id", "partitions": {"0": 3, "10": 4}},
            "b": {"id": "other", "partitions": {}},
        },
        "stop": {"a": {"0": 9}},
    }
    assert Positions.of(offset) == before


def test_an_offset_of_another_source_is_refused() -> None:
    with pytest.raises(UserError, match="is not an offset of a Kafka source"):
        Positions.of({"line": 3})


@pytest.mark.parametrize(
    ("rows", "most", "expected"),
    [
        ([10, 10], 100, [10, 10]),
        ([10, 10], 10, [5, 5]),
        ([1, 100], 10, [1, 9]),
        ([100, 1, 100], 21, [10, 1, 10]),
        ([100, 100, 100], 10, [3, 3, 4]),
        ([5, 5, 5], 2, [1, 1, 0]),
        ([1_000_000, 2], 1000, [998, 2]),
    ],
)
def test_rows_are_divided_equally_and_what_is_left_goes_to_those_with_more(
    rows: list[int], most: int, expected: list[int]
) -> None:
    found = shares(parts(rows), most)
    assert [found.get(each, 0) for each in parts(rows)] == expected


def test_the_rotation_continues_after_the_last_partition() -> None:
    assert rotated([B0, A1, A0], None) == [A0, A1, B0]
    assert rotated([B0, A1, A0], A0) == [A1, B0, A0]
    assert rotated([B0, A0], A1) == [B0, A0]
    assert rotated([B0, A0], B0) == [A0, B0]


def test_the_first_epoch_after_a_start_is_small_whatever_the_size_of_records() -> None:
    assert RecordSize().most_rows(256 * 1024**2) == FIRST_ROWS
    assert RecordSize().most_rows(10 * 1024) == 10
    assert RecordSize().most_rows(1) == 1
    assert RecordSize().measured(0, 0) == RecordSize()


def test_the_first_measured_size_replaces_the_assumed_one_and_later_ones_are_averaged() -> None:
    first = RecordSize().measured(1000, 100_000_000)
    assert first.most_rows(256 * 1024**2) == 2684
    assert first.measured(0, 0) == first
    assert first.measured(10, 1_000).bytes == 50_050
    assert first.most_rows(1000) == 1
    assert RecordSize().measured(10, 0).most_rows(1000) == 1000


def test_partitions_without_new_records_are_not_read() -> None:
    here = position({"a": ("id", {0: 3, 1: 7})})
    assert available(here, {A0: 5, A1: 7}) == {A0: 2}
    assert available(here, {A0: 5}) == {A0: 2}
    # A log that seems to end before the position has nothing to read.
    assert available(here, {A0: 1, A1: 8}) == {A1: 1}


def test_a_bounded_source_ends_at_its_stop_offsets() -> None:
    here = position({"a": ("id", {0: 3, 1: 7})}, stop={"a": {0: 4, 1: 7}})
    assert available(here, {A0: 100, A1: 100}) == {A0: 1}
    assert not is_at_stop(here)
    assert is_at_stop(here.moved({A0: 4}))
    assert not is_at_stop(position({"a": ("id", {0: 3})}))
    # Records up to the stop offset may have been lost.
    assert is_at_stop(here.moved({A0: 90}))


TOPICS = {"a": Topic("id", (0, 1))}


def test_a_position_that_agrees_with_the_topics_is_unchanged() -> None:
    here = position({"a": ("id", {0: 3, 1: 7})})
    found = reconciled(here, TOPICS, {A0: 0, A1: 7})
    assert found.positions == here
    assert found.losses == ()


def test_new_partitions_and_topics_begin_at_their_first_record() -> None:
    here = position({"a": ("id", {0: 3})})
    topics = TOPICS | {"b": Topic("other", (0,))}
    found = reconciled(here, topics, {A0: 0, A1: 40, B0: 5})
    assert found.positions == position({"a": ("id", {0: 3, 1: 40}), "b": ("other", {0: 5})})
    assert found.losses == ()


def test_a_bounded_source_does_not_read_partitions_that_appear_later() -> None:
    here = position({"a": ("id", {0: 3})}, stop={"a": {0: 9}})
    topics = TOPICS | {"b": Topic("other", (0,))}
    assert reconciled(here, topics, {A0: 0, A1: 0, B0: 0}).positions == here


def test_records_before_the_start_of_the_log_are_lost() -> None:
    here = position({"a": ("id", {0: 3, 1: 7})})
    found = reconciled(here, TOPICS, {A0: 10, A1: 0})
    assert found.positions == position({"a": ("id", {0: 10, 1: 7})})
    assert [(each.message, each.rows) for each in found.losses] == [
        ("a/0 begins at offset 10, but offset 3 is due", 7)
    ]


def test_a_log_that_ends_before_the_position_was_truncated() -> None:
    here = position({"a": ("id", {0: 3, 1: 7})})
    found = reconciled(here, TOPICS, {A0: 0, A1: 0}, ends={A1: 5})
    assert found.positions == position({"a": ("id", {0: 3, 1: 5})})
    assert [each.message for each in found.losses] == [
        "a/1 ends at offset 5, but the job has read up to 7"
    ]


def test_a_topic_that_was_created_again_begins_at_its_first_record() -> None:
    here = position({"a": ("old", {0: 3, 1: 7})})
    found = reconciled(here, TOPICS, {A0: 0, A1: 2})
    assert found.positions == position({"a": ("id", {0: 0, 1: 2})})
    assert [each.message for each in found.losses] == ["topic 'a' was deleted and created again"]


def test_a_bounded_source_reads_nothing_of_a_topic_that_was_created_again() -> None:
    here = position(
        {"a": ("old", {0: 3, 1: 7}), "b": ("other", {0: 1})}, stop={"a": {0: 9, 1: 9}, "b": {0: 5}}
    )
    topics = TOPICS | {"b": Topic("other", (0,))}
    found = reconciled(here, topics, {A0: 0, A1: 0, B0: 0}).positions
    assert found.stop == {"b": {0: 5}}
    assert available(found, {A0: 100, A1: 100, B0: 100}) == {B0: 4}
    assert is_at_stop(found.moved({B0: 5}))
    assert reconciled(found, topics, {A0: 0, A1: 0, B0: 0}).positions == found


def test_a_deleted_topic_is_a_loss_and_one_that_is_no_longer_read_is_not() -> None:
    here = position({"a": ("id", {0: 3, 1: 7}), "b": ("other", {0: 5}), "c": ("third", {0: 1})})
    found = reconciled(here, TOPICS, {A0: 0, A1: 0}, deleted=["b"])
    assert found.positions == position({"a": ("id", {0: 3, 1: 7})})
    assert [each.message for each in found.losses] == ["topic 'b' was deleted"]


STOP = {"a": {0: 5, 1: 7}}


def test_a_partition_at_its_stop_has_lost_nothing() -> None:
    here = position({"a": ("id", {0: 5, 1: 6})}, stop=STOP)
    found = reconciled(here, TOPICS, {A0: 10, A1: 6}, ends={A0: 3})
    assert found.positions == here
    assert found.losses == ()


def test_what_follows_the_stop_is_no_loss() -> None:
    here = position({"a": ("id", {0: 3, 1: 7})}, stop=STOP)
    found = reconciled(here, TOPICS, {A0: 10, A1: 10})
    assert found.positions == here.moved({A0: 5})
    assert [each.rows for each in found.losses] == [2]
    assert is_at_stop(found.positions)


@pytest.mark.parametrize(("offset", "losses"), [(7, 0), (6, 1)])
def test_a_topic_that_was_read_to_its_stop_may_be_deleted_or_created_again(
    offset: int, losses: int
) -> None:
    here = position({"a": ("old", {0: 5, 1: offset})}, stop=STOP)
    assert len(reconciled(here, {}, {}, deleted=["a"]).losses) == losses
    assert len(reconciled(here, TOPICS, {A0: 0, A1: 0}).losses) == losses


def test_a_range_has_only_what_moved_in_the_same_topic() -> None:
    start = position({"a": ("id", {0: 3, 1: 7}), "b": ("old", {0: 0})})
    end = position({"a": ("id", {0: 5, 1: 7}), "b": ("new", {0: 9}), "c": ("third", {0: 4})})
    assert start.spans(end) == {A0: (3, 5)}


def test_no_two_partitions_have_the_same_number() -> None:
    partitions = [Partition(topic, number) for topic in "abc" for number in (0, 3)]
    bases = numbered(partitions)
    assert len({bases[each.topic] + each.number for each in partitions}) == len(partitions)
