"""The option 'source.offset'."""

from __future__ import annotations

import pytest

from resurgence.connectors.kafka.options import KafkaSourceOptions
from resurgence.connectors.kafka.reading.offsets import Partition
from resurgence.connectors.kafka.reading.start import (
    Start,
    StartKind,
    explicit_offsets,
    parse_start,
)
from resurgence.errors import ConfigError, UserError
from resurgence.ids import JobName


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Start(StartKind.EARLIEST)),
        ("latest", Start(StartKind.LATEST)),
        ("group", Start(StartKind.GROUP)),
        ("2024-01-01T00:00:00Z", Start(StartKind.TIMESTAMP, 1_704_067_200_000)),
        ("2024-01-01T00:00:00", Start(StartKind.TIMESTAMP, 1_704_067_200_000)),
        ("2024-01-01T01:00:00.5+01:00", Start(StartKind.TIMESTAMP, 1_704_067_200_500)),
        ("1704067200000", Start(StartKind.TIMESTAMP, 1_704_067_200_000)),
        ('{"0": 12}', Start(StartKind.OFFSETS, offsets={Partition("", 0): 12})),
        (
            '{"a": {"0": 12, "1": 0}}',
            Start(StartKind.OFFSETS, offsets={Partition("a", 0): 12, Partition("a", 1): 0}),
        ),
    ],
)
def test_every_kind_of_start_is_parsed(text: str, expected: Start) -> None:
    assert parse_start(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "first",
        "12",
        "1704067200",
        '{"0": -1}',
        '{"0": "12"}',
        '{"a": {"x": 1}}',
        '{"a": 1, "b": {}}',
        "{",
    ],
)
def test_anything_else_is_refused_with_the_kinds(text: str) -> None:
    given = {"bootstrap_servers": "b:9092", "topic": "t", "source.offset": text}
    with pytest.raises(
        UserError, match=r"is not a valid value for option 'source.offset'"
    ) as error:
        KafkaSourceOptions.read(given)
    assert "earliest, latest, group" in error.value.hint


A0, B0 = Partition("a", 0), Partition("b", 0)


def test_offsets_without_a_topic_require_exactly_one() -> None:
    start = parse_start('{"0": 12}')
    assert explicit_offsets(start, ["a"], {A0: 0}, {A0: 20}, skips=False) == {A0: 12}
    with pytest.raises(UserError, match="without a topic, but the table reads 2 topics") as refused:
        explicit_offsets(start, ["a", "b"], {A0: 0, B0: 0}, {A0: 20, B0: 20}, skips=False)
    assert '{"topic": {"0": 12}}' in refused.value.hint
    with pytest.raises(UserError, match="but the table reads 0 topics"):
        explicit_offsets(start, [], {}, {}, skips=False)


def test_an_explicit_offset_below_the_start_of_the_log_is_refused_unless_losses_are_skipped() -> (
    None
):
    start = parse_start('{"a": {"0": 12}}')
    assert explicit_offsets(start, ["a"], {A0: 15}, {A0: 20}, skips=True) == {A0: 12}
    with pytest.raises(UserError, match="holds offsets from 15 up to 20") as refused:
        explicit_offsets(start, ["a"], {A0: 15}, {A0: 20}, skips=False)
    assert "on_data_loss = 'skip'" in refused.value.hint
    for skips in (True, False):
        with pytest.raises(UserError, match="holds offsets from 0 up to 9") as refused:
            explicit_offsets(start, ["a"], {A0: 0}, {A0: 9}, skips=skips)
        assert "on_data_loss" not in refused.value.hint


def options(**given: str) -> KafkaSourceOptions:
    return KafkaSourceOptions.read({"bootstrap_servers": "b:9092", **given})


def test_either_topics_or_a_pattern_are_required() -> None:
    assert options(topic="a, b").topic_names() == ("a", "b")
    assert options(topic_pattern="a-.*").topic_names() == ()
    for given in ({}, {"topic": "a", "topic_pattern": "b"}):
        with pytest.raises(ConfigError, match="either the option 'topic' or 'topic_pattern'"):
            options(**given).topic_names()
    with pytest.raises(UserError, match="topic_pattern"):
        options(topic_pattern="(")


def test_the_default_group_names_the_job_and_the_table() -> None:
    job = JobName("totals")
    assert options(topic="a").group("rides", job) == "resurgence-totals-rides"
    given = {"topic": "a", "source.group_id_prefix": "team-"}
    assert options(**given).group("rides", job) == "team-totals-rides"
    assert options(**given, **{"source.group_id": "g"}).group("rides", job) == "g"


@pytest.mark.parametrize(("text", "size"), [("1000", 1000), ("64MB", 64_000_000), ("1 gib", 2**30)])
def test_sizes_have_units(text: str, size: int) -> None:
    assert options(topic="a", **{"source.epoch_bytes": text}).epoch_bytes == size
    with pytest.raises(UserError, match=r"source\.epoch_bytes"):
        options(topic="a", **{"source.epoch_bytes": "0"})
