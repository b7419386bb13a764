-- Nexmark q11: how many bids each bidder made in each of their sessions.

CREATE TABLE nexmark WITH (
    connector = 'nexmark',
    event_time_interval = '10ms',
    message_count = 100000,
    start_time = '2024-01-01T00:00:00'
);

CREATE TABLE q11 WITH (connector = 'filesystem', path = 'out/q11', format = 'parquet', type = 'sink');

CREATE VIEW bids AS
SELECT bid.bidder AS bidder
FROM nexmark WHERE bid IS NOT NULL;

INSERT INTO q11
SELECT bidder, bids, window.start AS start, window.end AS end
FROM (
    SELECT bidder, count(*) AS bids, session(INTERVAL '10 seconds') AS window
    FROM bids
    GROUP BY bidder, window
);
