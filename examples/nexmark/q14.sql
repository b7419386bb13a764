-- Nexmark q14: bids of a middle price, with a class of the hour and a count of letters.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q14 WITH (connector = 'filesystem', path = 'out/q14', format = 'parquet', type = 'sink');

CREATE VIEW bids AS
SELECT bid.auction AS auction, bid.bidder AS bidder, bid.price AS price, bid.datetime AS datetime, bid.extra AS extra
FROM nexmark WHERE bid IS NOT NULL;

INSERT INTO q14
SELECT auction, bidder, 0.908 * price AS price,
    CASE
        WHEN hour(datetime) >= 8 AND hour(datetime) <= 18 THEN 'dayTime'
        WHEN hour(datetime) <= 6 OR hour(datetime) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END AS bid_time, datetime, extra, length(extra) - length(replace(extra, 'C', '')) AS c_counts
FROM bids
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;
