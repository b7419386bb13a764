-- Nexmark q13: bids with what a table at rest says of their auctions.
-- `in/side` is a folder of Parquet files with the columns `key` and `value`.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TEMPORARY TABLE side (key BIGINT PRIMARY KEY, value TEXT)
WITH (connector = 'filesystem', path = 'in/side', format = 'parquet', type = 'lookup');

CREATE TABLE q13 WITH (connector = 'filesystem', path = 'out/q13', format = 'parquet', type = 'sink');

CREATE VIEW bids AS
SELECT bid.auction AS auction, bid.bidder AS bidder, bid.price AS price, bid.datetime AS datetime,
    bid.auction % 10 AS side
FROM nexmark WHERE bid IS NOT NULL;

INSERT INTO q13
SELECT b.auction, b.bidder, b.price, b.datetime, s.value
FROM bids b
JOIN side s ON b.side = s.key;
