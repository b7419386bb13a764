"""The Nexmark generator: the same events for the same offset, in the benchmark's proportions."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.nexmark import COLUMNS, NexmarkOptions, NexmarkSource
from resurgence.connectors.registry import CONNECTORS
from resurgence.errors import SqlError, UserError
from resurgence.sql import compile_pipeline
from tests.engine.harness import Job, Leg, sink_table, sorted_rows, types

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)


def source(**options: str) -> NexmarkSource:
    given = {"event_time_interval": "10ms", "start_time": "2024-01-01T00:00:00", **options}
    return NexmarkSource(NexmarkOptions.read(given), COLUMNS)


def read(
    spark: SparkSession, made: NexmarkSource, first: int, most: int, parallelism: int = 1
) -> DataFrame:
    offset = {**made.first_offset(NOW, 3), "counter": first}
    planned = made.plan(offset, most, NOW)
    assert planned is not None
    return made.read(spark, planned, parallelism)


def test_the_rows_have_the_declared_types(spark: SparkSession) -> None:
    declared = ", ".join(f"`{each.name}` {each.type}" for each in COLUMNS)
    wanted = spark.createDataFrame([], declared)
    assert types(read(spark, source(), 0, 10)) == types(wanted)


def test_a_range_has_the_same_events_however_it_is_split(spark: SparkSession) -> None:
    whole = sorted_rows(read(spark, source(), 0, 130))
    cut = [
        row
        for first, most in ((0, 1), (1, 62), (63, 67))
        for row in sorted_rows(read(spark, source(), first, most))
    ]
    assert sorted(cut) == whole
    assert len(set(whole)) == 130
    many = read(spark, source(), 0, 12_000, parallelism=2)
    assert many.rdd.getNumPartitions() == 2
    assert sorted_rows(many) == sorted_rows(read(spark, source(), 0, 12_000))


def test_of_fifty_events_one_is_a_person_and_three_are_auctions(spark: SparkSession) -> None:
    read(spark, source(), 0, 5000).createOrReplaceTempView("events")
    (counts,) = spark.sql(
        """SELECT count(person), count(auction), count(bid), count(DISTINCT person.id),
            count(DISTINCT auction.id), min(person.id), min(auction.id),
            count_if(int(person IS NULL) + int(auction IS NULL) + int(bid IS NULL) <> 2)
        FROM events"""
    ).collect()
    assert tuple(counts) == (100, 300, 4600, 100, 300, 1000, 1000, 0)


def test_values_are_within_the_bounds_of_the_benchmark(spark: SparkSession) -> None:
    read(spark, source(), 0, 20_000).createOrReplaceTempView("events")
    (bounds,) = spark.sql(
        """SELECT min(bid.price) >= 100 AND max(bid.price) < 100000000,
            min(auction.category) = 10 AND max(auction.category) = 14,
            bool_and(auction.expires > auction.datetime), bool_and(auction.reserve > auction.initial_bid),
            bool_and(bid.auction >= 1000 AND bid.bidder >= 1000), bool_and(auction.seller >= 1000),
            max(bid.auction) <= max(auction.id) + 11, max(bid.bidder) <= max(person.id) + 10,
            bool_and(timestamp = coalesce(person.datetime, auction.datetime, bid.datetime)),
            bool_and(length(bid.extra) = 68), bool_and(person.email_address RLIKE '^[0-9A-F]+@[0-9A-F]+[.]com$'),
            bool_and(person.credit_card RLIKE '^[0-9]{4}( [0-9]{4}){3}$')
        FROM events"""
    ).collect()
    assert [name for name, is_so in bounds.asDict().items() if not is_so] == []


def test_some_auctions_bidders_and_channels_are_hot(spark: SparkSession) -> None:
    read(spark, source(), 0, 20_000).createOrReplaceTempView("events")
    (shares,) = spark.sql(
        """SELECT avg(int((bid.auction - 1000) % 100 = 0)), avg(int((bid.bidder - 1000) % 100 = 0)),
            avg(int((auction.seller - 1000) % 100 = 0)),
            avg(int(bid.channel IN ('Apple', 'Google', 'Facebook', 'Baidu'))),
            avg(int(bid.url LIKE '%&channel_id=%'))
        FROM events"""
    ).collect()
    assert list(shares) == [pytest.approx(each, abs=0.03) for each in (0.5, 0.75, 0.75, 0.5, 0.45)]


@pytest.mark.parametrize(
    ("interval", "is_shuffled"), [("20ms", True), ("100ms", True), ("5s", False)]
)
def test_events_are_out_of_order_by_less_than_the_default_watermark(
    spark: SparkSession, interval: str, is_shuffled: bool
) -> None:
    made = source(event_time_interval=interval)
    newest, most_behind = datetime.min, 0.0
    for first in range(0, 60, 5):
        times = [row.timestamp for row in read(spark, made, first, 5).select("timestamp").collect()]
        if first:
            most_behind = max(most_behind, (newest - min(times)).total_seconds())
        newest = max(newest, *times)
    assert most_behind < 1
    assert (most_behind > 0) == is_shuffled


def test_a_running_time_determines_the_number_of_events() -> None:
    made = source(event_rate="100", runtime="2.5")
    assert made._count == 250
    for options, message in (
        ({"runtime": "5"}, "'runtime' requires option 'event_rate'"),
        (
            {"runtime": "5", "event_rate": "1", "message_count": "3"},
            "'message_count' are mutually exclusive",
        ),
        (
            {"runtime": "soon", "event_rate": "1"},
            "'soon' is not a valid value for option 'runtime'",
        ),
        ({"event_rate": "0"}, "'0' is not a valid value for option 'event_rate'"),
    ):
        with pytest.raises(UserError, match=message):
            source(**options)


def test_a_table_declares_the_columns_as_they_are_or_none() -> None:
    sql = "CREATE TABLE n {} WITH (connector = 'nexmark', event_rate = '10'); SELECT bid.price AS p FROM n"
    assert compile_pipeline(sql.format(""), CONNECTORS).sources()[0].columns == COLUMNS
    with pytest.raises(SqlError, match="has type STRUCT"):
        compile_pipeline(sql.format("(bid STRUCT<price: INT>)"), CONNECTORS)


def test_a_job_over_the_generator_returns_the_batch_answer(
    spark: SparkSession, tmp_path: Path
) -> None:
    sql = (
        "CREATE TABLE nexmark WITH (connector = 'nexmark', event_time_interval = '10ms',"
        " message_count = 3000, start_time = '2024-01-01T00:00:00');\n"
        + sink_table(tmp_path / "out", name="out")
        + "INSERT INTO out SELECT window.start AS start, bid.bidder, count(*) AS bids FROM nexmark"
        " WHERE bid IS NOT NULL GROUP BY tumble(INTERVAL '10 seconds'), bid.bidder"
    )
    job = Job(spark, tmp_path, sql)
    job.run([Leg(700, 2, epochs=2), Leg(411, 3, epochs=1)])
    read(spark, source(message_count="3000"), 0, 3000).createOrReplaceTempView("nexmark")
    expected = spark.sql(
        "SELECT window.start, bid.bidder, count(*) FROM nexmark WHERE bid IS NOT NULL"
        " GROUP BY window(timestamp, '10 seconds'), bid.bidder"
    )
    assert sorted_rows(spark.read.parquet(str(tmp_path / "out"))) == sorted_rows(expected)
    assert sum(sum(each.counts.late_rows.values()) for each in job.reports) == 0
