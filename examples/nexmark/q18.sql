-- Nexmark q18: the last bid of each bidder for each auction.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q18 WITH (connector = 'single_file', path = 'out/q18.changes', format = 'debezium_json', type = 'sink');

CREATE VIEW bids AS
SELECT bid.auction AS auction, bid.bidder AS bidder, bid.price AS price, bid.channel AS channel, bid.url AS url, bid.datetime AS datetime, bid.extra AS extra
FROM nexmark WHERE bid IS NOT NULL;

INSERT INTO q18
SELECT auction, bidder, price, channel, url, datetime, extra
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY datetime DESC) AS place
    FROM bids
)
WHERE place <= 1;
