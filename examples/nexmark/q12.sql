-- Nexmark q12: how many bids each bidder made in every ten seconds.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q12 WITH (connector = 'filesystem', path = 'out/q12', format = 'parquet', type = 'sink');

CREATE VIEW bids AS
SELECT bid.bidder AS bidder
FROM nexmark WHERE bid IS NOT NULL;

INSERT INTO q12
SELECT bidder, bids, window.start AS start, window.end AS end
FROM (
    SELECT bidder, count(*) AS bids, tumble(INTERVAL '10 seconds') AS window
    FROM bids
    GROUP BY bidder, window
);
