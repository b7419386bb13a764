-- Nexmark q1: prices in another currency.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q1 WITH (connector = 'filesystem', path = 'out/q1', format = 'parquet', type = 'sink');

CREATE VIEW bids AS
SELECT bid.auction AS auction, bid.bidder AS bidder, bid.price AS price, bid.datetime AS datetime, bid.extra AS extra
FROM nexmark WHERE bid IS NOT NULL;

INSERT INTO q1
SELECT auction, bidder, 0.908 * price AS price, datetime, extra FROM bids;
