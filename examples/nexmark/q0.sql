-- Nexmark q0: every bid, as it is.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q0 WITH (connector = 'filesystem', path = 'out/q0', format = 'parquet', type = 'sink');

CREATE VIEW bids AS
SELECT bid.auction AS auction, bid.bidder AS bidder, bid.price AS price, bid.datetime AS datetime, bid.extra AS extra
FROM nexmark WHERE bid IS NOT NULL;

INSERT INTO q0
SELECT auction, bidder, price, datetime, extra FROM bids;
