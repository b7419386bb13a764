-- Nexmark q19: the ten highest bids of each auction.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q19 WITH (connector = 'single_file', path = 'out/q19.changes', format = 'debezium_json', type = 'sink');

CREATE VIEW bids AS
SELECT bid.auction AS auction, bid.bidder AS bidder, bid.price AS price, bid.datetime AS datetime
FROM nexmark WHERE bid IS NOT NULL;

INSERT INTO q19
SELECT *
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, datetime) AS place
    FROM bids
)
WHERE place <= 10;
