-- Nexmark q2: bids for some auctions.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q2 WITH (connector = 'filesystem', path = 'out/q2', format = 'parquet', type = 'sink');

CREATE VIEW bids AS
SELECT bid.auction AS auction, bid.price AS price
FROM nexmark WHERE bid IS NOT NULL;

INSERT INTO q2
SELECT auction, price FROM bids WHERE auction % 123 = 0;
